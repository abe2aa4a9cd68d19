# SPDX-License-Identifier: Apache-2.0
"""Graphs of fixed shape made from one with named dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from made_graphs import loaded, lowered

from dpfedge.compiler.buckets import with_buckets
from dpfedge.compiler.families import Imported
from dpfedge.compiler.nodes import Nodes
from dpfedge.errors import ModelError, Unsupported
from dpfedge.tensors import TensorSpec

WEIGHT = np.random.default_rng(2).standard_normal((32, 48)).astype(np.float32)


def graph(*dims: int | str) -> onnx.ModelProto:
    """x[dims, 32] → y[2·first dimension, 48]: each row twice."""
    nodes = Nodes("g")
    rows = nodes.add("MatMul", ["x", nodes.constant("w", WEIGHT)], "rows")
    nodes.add("Concat", [rows, rows], "y", axis=0)
    return nodes.model([TensorSpec("x", "f32", (*dims, 32))], [TensorSpec("y", "f32", ("twice", *dims[1:], 48))])


def made(dims: tuple[int | str, ...] = ("frames",), *, dynamic: bool = True, **buckets: list[int]) -> Imported:
    """One graph `g` with hints, bucketed."""
    return with_buckets(Imported({"g": graph(*dims)}, {}, {}, {"g": {"rows": 1}}), buckets, dynamic=dynamic, where="m")


def dims(model: onnx.ModelProto) -> list[list[Any]]:
    """Sizes and names of input and output."""
    ports = (*model.graph.input, *model.graph.output)
    return [[dim.dim_param or dim.dim_value for dim in port.type.tensor_type.shape.dim] for port in ports]


def test_with_buckets__beside_the_dynamic_graph() -> None:
    """Each size becomes a graph with known output sizes and hints that say what it is; the dynamic one stays."""
    found = made(frames=[64, 16, 64])

    assert list(found.graphs) == ["g", "g@frames-16", "g@frames-64"]
    assert dims(found.graphs["g@frames-16"]) == [[16, 32], [32, 48]]
    assert found.hints["g@frames-64"] == {"rows": 1, "bucket": {"graph": "g", "sizes": {"frames": 64}}}
    assert found.hints["g"] == {"rows": 1}
    assert dims(found.graphs["g"]) == [["frames", 32], ["twice", 48]]


def test_with_buckets__same_answers_and_weights() -> None:
    """A bucket answers as the dynamic graph does, from weights that are the same bytes."""
    found = made(frames=[4])
    x = np.random.default_rng(3).standard_normal((4, 32)).astype(np.float32)
    answers = [loaded(model).run({"x": x})["y"] for model in found.graphs.values()]
    weights = [lowered(model).weights for model in found.graphs.values()]

    assert (answers[0] == answers[1]).all()
    assert weights[0].keys() == weights[1].keys()
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


def test_with_buckets__only_fixed() -> None:
    """A backend of fixed shapes gets no dynamic graph, and every dimension needs sizes."""
    assert list(made(dynamic=False, frames=[8]).graphs) == ["g@frames-8"]
    assert list(made((7,), dynamic=False).graphs) == ["g"]
    with pytest.raises(Unsupported, match=r"m: graph g: the backend needs fixed shapes; found frames; give each"):
        made(dynamic=False)


def test_with_buckets__several_dimensions() -> None:
    """Every combination becomes a graph; a dimension without a name is called by its place."""
    found = made(("batch", "frames"), frames=[8, 16], batch=[1, 2])
    assert [name for name in found.graphs if name != "g"] == [
        "g@batch-1@frames-8", "g@batch-1@frames-16", "g@batch-2@frames-8", "g@batch-2@frames-16",
    ]  # fmt: skip

    unnamed = graph("frames")
    unnamed.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    fixed = with_buckets(Imported({"g": unnamed}, {}, {}), {"x[0]": [4]}, dynamic=False, where="m")
    assert dims(fixed.graphs["g@x_0_-4"]) == [[4, 32], [8, 48]]


def test_with_buckets__refuses() -> None:
    """A dimension no graph has is named with those there are; too many combinations are not made."""
    with pytest.raises(ModelError, match="no graph has such a dimension; found tokens; allowed frames"):
        made(tokens=[1])
    with pytest.raises(ModelError, match="too many buckets; found 65; allowed 64"):
        made(frames=list(range(1, 66)))
