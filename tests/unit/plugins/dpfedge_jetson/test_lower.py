# SPDX-License-Identifier: Apache-2.0
"""Lowering for the GPU and for a DLA."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
from dpfedge_jetson.lower import lower
from onnx import helper

from dpfedge.backend.api import LoweredGraph, LowerRequest
from dpfedge.errors import Unsupported
from dpfedge.testing.models import affine

Network = Callable[..., onnx.ModelProto]


def lowered(model: onnx.ModelProto, arch: str) -> LoweredGraph:
    """For one target."""
    return lower(LowerRequest("g", model.SerializeToString(), arch, frozenset()))


@pytest.mark.parametrize("arch", ["sm_87", "sm_110"])
def test_lower__for_the_gpu_of_each_chip(arch: str) -> None:
    """The same bytes each time."""
    assert lowered(affine(4), arch).code == lowered(affine(4), arch).code


@pytest.mark.parametrize("arch", ["sm_90", "sm_72", "nvdla1", "gfx942", ""])
def test_lower__for_something_else(arch: str) -> None:
    """A server's GPU is backend cuda's."""
    with pytest.raises(Unsupported, match=r"graph g: no device of this backend.*allowed sm_87, sm_110, nvdla2"):
        lowered(affine(4), arch)


def test_lower__for_a_dla(network: Network) -> None:
    """Whole, and the decision is shown."""
    model = network(
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), helper.make_node("Relu", ["c"], ["y"]),
    )  # fmt: skip
    found = lowered(model, "nvdla2")

    assert found.code == lowered(model, "nvdla2").code
    assert [choice for choice, _ in found.decisions] == ["optimiser=ENABLE_BASIC", "engine=dla"]
    assert found.arithmetic == "half"


def test_lower__refuses_what_a_dla_would_leave_to_the_gpu(network: Network) -> None:
    """Every such node, and where the graph can go."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), helper.make_node("Erf", ["c"], ["y"], name="e")]

    with pytest.raises(Unsupported, match=r"a DLA does not run this graph whole.*Erf e: a DLA has no such layer.*GPU"):
        lowered(network(*nodes), "nvdla2")


def test_lower__tells_how_many_more(network: Network) -> None:
    """Not a page of them."""
    nodes = [helper.make_node("Erf", [f"v{i}" if i else "x"], [f"v{i + 1}" if i < 11 else "y"]) for i in range(12)]

    with pytest.raises(Unsupported, match="and 4 more"):
        lowered(network(*nodes), "nvdla2")
