# SPDX-License-Identifier: Apache-2.0
"""Small models the suite loads beside single operators: sizes in, ONNX models with a known answer out.

Each uses matrix products and sums only, which every backend has; what is right is computed in NumPy beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dpfedge.backend.api import Array
from dpfedge.testing.cases import IR_VERSION, OPSETS

__all__ = ["WIDTH", "affine", "chain", "decaying", "heavy", "matrix", "right_affine", "rows"]

WIDTH = 64


def matrix(seed: int, width: int = WIDTH) -> Array:
    """f32[width, width] that keeps vectors' lengths about as they are."""
    return np.asarray(np.random.default_rng(seed).standard_normal((width, width)) / np.sqrt(width), np.float32)


def rows(count: int, width: int = WIDTH, seed: int = 0) -> Array:
    """f32[count, width]."""
    return np.random.default_rng(count + 1000 * seed).standard_normal((count, width)).astype(np.float32)


def affine(rows: int | str, name: str = "affine") -> onnx.ModelProto:
    """y = x·W + 1, z = x + x; x f32[rows, WIDTH]."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], name="product"),
        helper.make_node("Add", ["xw", "one"], ["y"], name="sum"),
        helper.make_node("Add", ["x", "x"], ["z"], name="twice"),
    ]
    return _model(name, nodes, {"x": (rows, WIDTH)}, {"y": (rows, WIDTH), "z": (rows, WIDTH)},
                  {"w": matrix(1), "one": np.ones(WIDTH, np.float32)})  # fmt: skip


def right_affine(x: Array) -> dict[str, Array]:
    """The answers of `affine`."""
    return {"y": x @ matrix(1) + 1, "z": x + x}


def decaying(size: int | str = 4) -> onnx.ModelProto:
    """next = state·0.5 + x, for links from run to run; f32[size]."""
    nodes = [
        helper.make_node("Mul", ["state", "half"], ["less"], name="less"),
        helper.make_node("Add", ["less", "x"], ["next"], name="next"),
    ]
    return _model(
        "decaying", nodes, {"state": (size,), "x": (size,)}, {"next": (size,)}, {"half": np.array([0.5], np.float32)}
    )


def chain(length: int, count: int, width: int = WIDTH) -> onnx.ModelProto:
    """x·W·W·… (`length` times), f32[count, width]: long enough to be ended on its way."""
    names = ["x", *(f"x{step}" for step in range(1, length)), "y"]
    nodes = [
        helper.make_node("MatMul", [before, f"w{step % 2}"], [after], name=f"step{step}")
        for step, (before, after) in enumerate(pairwise(names))
    ]
    weights = {f"w{seed}": matrix(seed, width) for seed in range(2)}
    return _model("chain", nodes, {"x": (count, width)}, {"y": (count, width)}, weights)


def heavy(mebibytes: int) -> onnx.ModelProto:
    """y = x·W with a W of that size; x f32[1, 1024]."""
    weight = np.full((1024, mebibytes * 256), 1 / 1024, np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    return _model("heavy", [node], {"x": (1, 1024)}, {"y": (1, weight.shape[1])}, {"w": weight})


def _model(
    name: str, nodes: Sequence[onnx.NodeProto], inputs: dict[str, tuple[int | str, ...]],
    outputs: dict[str, tuple[int | str, ...]], weights: dict[str, Array],
) -> onnx.ModelProto:  # fmt: skip
    before, after = (
        [helper.make_tensor_value_info(port, TensorProto.FLOAT, list(dims)) for port, dims in group.items()]
        for group in (inputs, outputs)
    )
    constants = [numpy_helper.from_array(array, key) for key, array in weights.items()]
    graph = helper.make_graph(nodes, name, before, after, constants)
    opsets = [helper.make_opsetid(*opset) for opset in OPSETS]
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets)
