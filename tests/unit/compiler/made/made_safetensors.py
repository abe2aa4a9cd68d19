# SPDX-License-Identifier: Apache-2.0
"""Safetensors files written by the library of that name, BF16 included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import TensorSpec, serialize_file

_NUMPY = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]], kind: str = "F32") -> Path:
    """Write `tensors` as `kind` to `path`."""
    arrays = {name: np.ascontiguousarray(array.astype(_NUMPY[kind])) for name, array in tensors.items()}
    specs = {
        name: TensorSpec(dtype=_NAMES[kind], shape=list(array.shape), data_ptr=array.ctypes.data, data_len=array.nbytes)
        for name, array in arrays.items()
    }
    serialize_file(specs, str(path))
    return path
