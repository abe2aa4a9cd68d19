# SPDX-License-Identifier: Apache-2.0
"""Chains behind kernels that can compute them themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dpfedge_opencl.fuse_epilogue import give_epilogues
from dpfedge_opencl.ops.api import OPS, Node
from dpfedge_opencl.ops.chain import Chain, chain_attrs


class _Product(Chain):
    epilogue = "channel"


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    OPS["made.Product"] = _Product()
    yield
    del OPS["made.Product"]


SHAPES = {"p": ((1, 8, 5), (1, 8, 7)), "y": ((1, 8, 5), (1, 8, 7)), "b": ((8, 1), (8, 1)), "r": ((1, 8, 5), (1, 8, 7)),
          "s": ((5,), (7,))}  # fmt: skip
DTYPES = dict.fromkeys([*SHAPES, "x"], "f32")
PRODUCT = Node("made.Product", "product", ("x",), ("p",), {})


def _chain(*operands: str) -> Node:
    steps = [["Add", [0, 1], {}, "f32"], ["Relu", [len(operands)], {}, "f32"]]
    return Node("Chain", "chain", operands, ("y",), chain_attrs(steps, ["f32"] * len(operands), [len(operands) + 1]))


@pytest.mark.parametrize(("operands", "kind"), [(("p", "b"), "channel"), (("b", "p"), "channel"), (("p", "r"), "same")])
def test_give_epilogues__the_kernel_computes_the_chain(operands: tuple[str, ...], kind: str) -> None:
    """Operand 0 is its own result wherever that stood."""
    (found,) = give_epilogues([PRODUCT, _chain(*operands)], set(), SHAPES, DTYPES)
    assert (found.op, found.outputs) == ("made.Product", ("y",))
    assert found.inputs == ("x", next(one for one in operands if one != "p"))
    epilogue = found.attrs["epilogue"]
    assert epilogue["kinds"] == [kind]
    assert sorted(epilogue["steps"][0][1]) == [0, 1]
    assert epilogue["steps"][1][1] == [2]


def test_give_epilogues__not_where_it_cannot() -> None:
    """An operand along another axis, a result that others read, or one that is a port."""
    for nodes, outputs in (
        ([PRODUCT, _chain("p", "s")], set()),
        ([PRODUCT, _chain("p", "b"), Node("Other", "o", ("p",), ("q",), {})], set()),
        ([PRODUCT, _chain("p", "b")], {"p"}),
    ):
        assert give_epilogues(nodes, outputs, SHAPES, DTYPES) == nodes
