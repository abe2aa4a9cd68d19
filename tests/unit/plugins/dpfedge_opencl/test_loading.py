# SPDX-License-Identifier: Apache-2.0
"""Graphs out of packages: lowered, placed, loaded, with and without a seal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dpfedge_opencl import OpenClBackend
from dpfedge_opencl.runtime import open_runtime
from made_plans import a_device

from dpfedge.backend.api import Budget, GraphView, SealedView
from dpfedge.errors import BackendError
from dpfedge.testing.loading import lowered, view
from dpfedge.testing.models import affine, right_affine, rows


def _view() -> GraphView:
    backend, device = OpenClBackend(), a_device()
    return view(backend, lowered(backend, device, affine("n")), "affine")


def test_load__runs_as_the_package_has_it() -> None:
    """Weights stay where they are mapped."""
    made = OpenClBackend().load(_view(), a_device(), Budget())
    found = made.run({"x": rows(5)})
    for name, right in right_affine(rows(5)).items():
        assert np.allclose(found[name], right, atol=1e-4)
    made.close()


def test_seal__spares_compiling_and_changes_no_bit() -> None:
    """Programs of a seal are used; a damaged one costs time, nothing else."""
    backend, device = OpenClBackend(), a_device()
    graph = replace(_view(), samples=[{"x": rows(3)}])
    plain = backend.load(graph, device, Budget()).run({"x": rows(4)})
    found = backend.seal(graph, device, Budget())
    assert found is not None
    (data,) = found["programs"]
    for content in (bytes(data), b"damaged", bytes(data)[:-1] + b"\xff"):
        sealed = {"programs": SealedView(memoryview(content), -1, 0)}
        made = backend.load(replace(graph, sealed=sealed), device, Budget())
        again = made.run({"x": rows(4)})
        assert all(np.array_equal(again[name], plain[name]) for name in plain)
        made.close()
    assert open_runtime(device).programs._stores == []


def test_load__of_damaged_bytes() -> None:
    """The graph is named."""
    with pytest.raises(BackendError, match="affine"):
        OpenClBackend().load(replace(_view(), code=memoryview(b"\x00")), a_device(), Budget())
