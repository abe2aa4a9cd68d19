# SPDX-License-Identifier: Apache-2.0
"""The skeleton: everything of the contract, nothing behind it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dpfedge_null import NullBackend, dpfedge_register_backends

from dpfedge.backend.api import GraphView, LowerRequest, missing
from dpfedge.errors import BackendError, Unsupported
from dpfedge.testing.loading import load
from dpfedge.testing.models import affine

BACKEND = NullBackend()
DEVICE = BACKEND.devices(Path("/"))[0]


def test_register__one_whole_backend() -> None:
    """To be copied with nothing left out."""
    offered: list[Any] = []
    dpfedge_register_backends(SimpleNamespace(add=offered.append))

    assert [(one.name, missing(one)) for one in offered] == [("null", ())]


def test_run__is_refused() -> None:
    """A loaded graph says by name that it will never run; closed, that it is closed."""
    executable = load(BACKEND, DEVICE, affine(1))

    with pytest.raises(Unsupported, match="graph affine: this backend runs nothing"):
        executable.run({"x": np.zeros((1, 64), np.float32)})
    executable.close()
    with pytest.raises(BackendError, match="graph affine: the executable is closed"):
        executable.run({})


def test_lower__no_graph() -> None:
    """Bytes that are no ONNX, and code that is not of this backend."""
    with pytest.raises(BackendError, match="graph g: it is no ONNX graph"):
        BACKEND.lower(LowerRequest("g", b"\x07x", "none", frozenset()))
    with pytest.raises(BackendError, match="graph g: it was not lowered by this backend"):
        BACKEND.load(GraphView("g", memoryview(b"other"), (), (), {}), DEVICE, None)  # type: ignore[arg-type]
