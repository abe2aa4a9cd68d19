# SPDX-License-Identifier: Apache-2.0
"""What a DLA runs, node by node, and why it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest
from dpfedge_jetson.dla import OPERATORS, refusals
from onnx import TensorProto, helper

Network = Callable[..., onnx.ModelProto]
PADS = [1, 1, 1, 1]


def node(op: str, *inputs: str, **values: Any) -> onnx.NodeProto:
    """One node from x to y."""
    return helper.make_node(op, ["x", *inputs], ["y"], name="n", **values)


@pytest.mark.parametrize(
    "one",
    [
        node("Conv", "w", pads=PADS),
        node("Relu"),
        node("MaxPool", kernel_shape=[3, 3], pads=PADS),
        node("AveragePool", kernel_shape=[3, 3], pads=PADS),
        node("Clip", "zero", "six"),
        node("Add", "x"),
        node("Concat", axis=1),
    ],
)
def test_refusals__none_of_what_it_has(network: Network, one: onnx.NodeProto) -> None:
    """Layers of its list within their limits."""
    assert list(refusals(network(one))) == []


@pytest.mark.parametrize(
    ("one", "kernel", "why"),
    [
        (node("Conv", "w"), (16, 16, 33, 33), "kernel 33 is not 1 to 32"),
        (node("Conv", "w", strides=[9, 9]), (16, 16, 3, 3), "stride 9 is not 1 to 8"),
        (node("Conv", "w", pads=[32] * 4), (16, 16, 3, 3), "padding 32 is not 0 to 31"),
        (node("Conv", "w", dilations=[33, 1]), (16, 16, 3, 3), "dilation 33 is not 1 to 32"),
        (node("Conv", "w", auto_pad="SAME_UPPER"), (16, 16, 3, 3), "padding is left to the operator"),
        (node("ConvTranspose", "w", pads=PADS), (16, 16, 3, 3), "a deconvolution with padding"),
        (node("ConvTranspose", "w", group=2), (16, 8, 3, 3), "a grouped or dilated deconvolution"),
        (node("MaxPool", kernel_shape=[9, 9]), (1, 1, 1, 1), "window 9 is not 1 to 8"),
        (node("MaxPool", kernel_shape=[3, 3], ceil_mode=1), (1, 1, 1, 1), "sizes are rounded up"),
        (node("MaxPool", kernel_shape=[3, 3], strides=[17, 17]), (1, 1, 1, 1), "stride 17 is not 1 to 16"),
        (node("Concat", axis=2), (1, 1, 1, 1), "it joins along axis 2, not the channels"),
        (node("Clip", "six"), (1, 1, 1, 1), "it clips below another number than 0"),
        (node("Softmax"), (1, 1, 1, 1), "a DLA has no such layer"),
        (node("MatMul", "w"), (1, 16, 8, 8), "a DLA has no such layer"),
    ],
)
def test_refusals__name_node_and_limit(
    network: Network, one: onnx.NodeProto, kernel: tuple[int, ...], why: str
) -> None:
    """One line for each node that would run elsewhere."""
    sizes: tuple[str, ...] = ("n", "c", "h", "w")
    [told] = [line for line in refusals(network(one, out=sizes, kernel=kernel)) if not line.startswith("port y")]

    assert told == f"{one.op_type} n: {why}"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"shape": (1, 16, "h", 8)}, "port x: a size is left open, and a DLA has fixed ones"),
        ({"kind": TensorProto.INT64}, "port x: a DLA takes floats, not INT64"),
        ({"shape": (1, 16, 8, 9000)}, "port x: size 9000 is not 1 to 8192"),
        ({"shape": (5000, 16, 8, 8)}, "port x: batch 5000 is not 1 to 4096"),
    ],
)
def test_refusals__of_ports(network: Network, change: dict[str, Any], why: str) -> None:
    """Sizes are fixed, and numbers are floats."""
    assert why in list(refusals(network(node("Relu"), **change)))


def test_refusals__of_lines(network: Network) -> None:
    """Convolutions over one dimension are none of its layers."""
    told = list(refusals(network(node("Conv", "w"), shape=(1, 16, 8), out=(1, 16, 6), kernel=(16, 16, 3))))

    assert told == ["Conv n: its input has 3 dimensions, not 4"]


def test_operators__are_a_short_list() -> None:
    """What is not on it is refused, other domains' operators too."""
    assert {"Conv", "MaxPool", "Relu", "Add"} <= set(OPERATORS)
    assert not {"Gemm", "MatMul", "LSTM", "Softmax"} & set(OPERATORS)
