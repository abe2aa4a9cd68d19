# SPDX-License-Identifier: Apache-2.0
"""Tests of dpfedge.tensors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from dpfedge.errors import FormatError
from dpfedge.tensors import DTYPE_CODES, DTYPES, TensorSpec, dtype_name


@pytest.mark.parametrize("name", [name for name in DTYPES if name not in ("bytes", "bf16")])
def test_dtype_name__is_the_inverse_of_numpy(name: str) -> None:
    """Every dtype with a NumPy form goes there and back."""
    assert dtype_name(TensorSpec("x", name).numpy) == name


def test_dtype_codes__never_change() -> None:
    """The numbers are on the wire."""
    assert DTYPE_CODES["bytes"] == 0
    assert DTYPE_CODES["f32"] == 1
    assert DTYPE_CODES["i16"] == 7
    assert DTYPE_CODES["bool"] == 13


def test_spec__unknown_dtype() -> None:
    """The message names the tensor, the found word and the allowed ones."""
    with pytest.raises(FormatError, match=r"tensor x: unknown dtype; found float; allowed bytes, f32"):
        TensorSpec("x", "float")


def test_spec__map_and_back() -> None:
    """Dynamic dimensions keep their names."""
    spec = TensorSpec("x", "f32", (1, "n"))

    assert TensorSpec.from_map(spec.to_map()) == spec
    assert spec.numpy == np.dtype("<f4")


def test_binding__imports_no_numpy() -> None:
    """Opening and binding a package must not pay for NumPy."""
    code = "import sys, dpfedge.binding, dpfedge.package; sys.exit('numpy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
