# SPDX-License-Identifier: Apache-2.0
"""The registry of operators."""

from __future__ import annotations

import inspect

from dpfedge_opencl import ops
from dpfedge_opencl.ops.api import OPS


def test_operators__have_what_the_protocol_asks() -> None:
    """Every registered operator has the four methods."""
    assert ops.__all__
    for name, one in OPS.items():
        for method in ("supports", "lower", "shape", "emit"):
            assert callable(getattr(one, method)), (name, method)


def test_operators__take_the_same_arguments() -> None:
    """They are called by position."""
    for one in OPS.values():
        assert len(inspect.signature(one.supports).parameters) == 3
        assert len(inspect.signature(one.shape).parameters) == 2
