# SPDX-License-Identifier: Apache-2.0
"""Graphs with named dimensions and the sizes those may have in, one graph of fixed shape per size out.

The copies hold the same constants, so a package stores their weights once. Who runs them pads its inputs to a bucket
(`BoundModel.bucket` picks it); nothing here knows what padding a graph bears.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import onnx

from dpfedge.compiler.families import Imported
from dpfedge.compiler.importer.onnx import subgraphs
from dpfedge.errors import ModelError, Unsupported

__all__ = ["BUCKETS_MAX", "bucket_name", "with_buckets"]

BUCKETS_MAX = 64
"""Graphs that one graph may become: each is lowered, kept in the manifest and checked."""

_SMALL_BYTES = 4096  # shapes and axes, whose values inference needs, are smaller


def with_buckets(
    imported: Imported, buckets: Mapping[str, Sequence[int]], *, dynamic: bool, where: str, offered: bool = True
) -> Imported:
    """`imported` with one more graph per bucket; with `dynamic` False only those, and every dimension must have one.

    `offered`: whether a recipe may give the family buckets, for the words of the refusal. A bucketed graph's hints name
    what it is: `bucket` = {graph, sizes}. ModelError for a dimension no graph has.
    """
    named = {name: _dims(graph) for name, graph in imported.graphs.items()}
    known = {dim for dims in named.values() for dim in dims}
    if unknown := sorted(set(buckets) - known):
        allowed = ", ".join(sorted(known)) or "none"
        raise ModelError("no graph has such a dimension", where=where, found=", ".join(unknown), allowed=allowed)
    graphs: dict[str, onnx.ModelProto] = {}
    hints = dict(imported.hints)
    for name, graph in imported.graphs.items():
        wanted = {dim: buckets[dim] for dim in named[name] if dim in buckets}
        if dynamic or not named[name]:
            graphs[name] = graph
        elif missing := [dim for dim in named[name] if dim not in buckets]:
            remedy = "give each dimension sizes: buckets: {DIM: [SIZE, …]}" if offered else "its family has no buckets"
            raise Unsupported(
                "the backend needs fixed shapes",
                where=f"{where}: graph {name}",
                found=", ".join(missing),
                remedy=remedy,
            )
        for sizes in _combinations(wanted, f"{where}: graph {name}"):
            title = bucket_name(name, sizes)
            graphs[title] = _fixed(graph, sizes)
            hints[title] = {**imported.hints.get(name, {}), "bucket": {"graph": name, "sizes": sizes}}
    return replace(imported, graphs=graphs, hints=hints)


def bucket_name(graph: str, sizes: Mapping[str, int]) -> str:
    """The name of one fixed graph, `encode@frames-64`, of characters that a package allows in names."""
    return f"{graph}@" + "@".join(f"{re.sub('[^A-Za-z0-9._+-]', '_', dim)}-{size}" for dim, size in sizes.items())


def _dims(model: onnx.ModelProto) -> list[str]:
    """Names of the inputs' dimensions, in order; one without name or size is called by its place."""
    constants = {tensor.name for tensor in model.graph.initializer}
    found: dict[str, None] = {}
    for port in model.graph.input:
        for place, dim in enumerate(port.type.tensor_type.shape.dim if port.name not in constants else ()):
            if not dim.HasField("dim_value"):
                found[dim.dim_param or f"{port.name}[{place}]"] = None
    return list(found)


def _combinations(wanted: Mapping[str, Sequence[int]], where: str) -> Iterator[dict[str, int]]:
    if not wanted:
        return
    rows = list(itertools.product(*(sorted(set(sizes)) for sizes in wanted.values())))
    if len(rows) > BUCKETS_MAX:
        raise ModelError("too many buckets", where=where, found=len(rows), allowed=BUCKETS_MAX)
    yield from (dict(zip(wanted, row, strict=True)) for row in rows)


def _fixed(model: onnx.ModelProto, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """A copy with `sizes` in place of names, and the outputs' shapes as far as they follow."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in subgraphs(copy.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for place, dim in enumerate(value.type.tensor_type.shape.dim):
                size = sizes.get(dim.dim_param or f"{value.name}[{place}]")
                if size is not None and not dim.HasField("dim_value"):
                    dim.dim_value = size
    inferred = onnx.shape_inference.infer_shapes(_light(copy), data_prop=True)
    known = {value.name: value.type.tensor_type.shape.dim for value in inferred.graph.output}
    for value in copy.graph.output:
        for dim, found in zip(value.type.tensor_type.shape.dim, known[value.name], strict=False):
            if not dim.HasField("dim_value") and found.HasField("dim_value"):
                dim.dim_value = found.dim_value
    return copy


def _light(model: onnx.ModelProto) -> onnx.ModelProto:
    """For shape inference: without the values of large constants, and without shapes that were said before."""
    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = light.graph
    graph.name = model.graph.name
    graph.input.extend(model.graph.input)
    graph.node.extend(model.graph.node)
    for tensor in model.graph.initializer:
        if tensor.ByteSize() <= _SMALL_BYTES:
            graph.initializer.append(tensor)
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    for value in model.graph.output:
        kept = graph.output.add()
        kept.CopyFrom(value)
        for dim in kept.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")
    return light
