# SPDX-License-Identifier: Apache-2.0
"""An ONNX file in, a self-contained ModelProto out; external data is read only from the model's own folder.

Versions are checked against what dpfedge compiles for, so that an unknown one is found here and never on a board.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from dpfedge.compiler.importer.confined import confined
from dpfedge.errors import ModelError

__all__ = ["IR_MAX", "OPSET_MAX", "OPSET_MIN", "check_model", "import_onnx", "subgraphs"]

OPSET_MIN, OPSET_MAX = 7, 28
"""Opsets of the standard domain that onnxruntime 1.32 runs: 6 finds no kernels, 29 is refused."""
IR_MAX = 14
DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc"})


def import_onnx(path: Path) -> onnx.ModelProto:
    """Read and check `path` with all its external data inside; ModelError says what is wrong with which number."""
    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError as error:
        raise ModelError(
            "not an ONNX file, or cut off",
            where=str(path),
            found=f"{path.stat().st_size} bytes",
            remedy="fetch it again",
        ) from error
    check_model(model, str(path))
    for graph in subgraphs(model.graph):
        for tensor in graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                _read_external(tensor, path)
    return model


def check_model(model: onnx.ModelProto, where: str) -> None:
    """Refuse an empty graph, an unknown IR or opset version, and operator domains that no backend has."""
    if not model.graph.node:
        raise ModelError("the graph has no node", where=where, found=f"IR {model.ir_version}")
    if not 3 <= model.ir_version <= IR_MAX:
        raise ModelError(
            "unsupported IR version",
            where=where,
            found=model.ir_version,
            allowed=f"3 to {IR_MAX}",
            remedy="export it again",
        )
    used = {node.domain for graph in subgraphs(model.graph) for node in graph.node}
    if foreign := sorted(used - DOMAINS):
        raise ModelError(
            "operators of an unknown domain",
            where=where,
            found=", ".join(foreign),
            allowed=", ".join(sorted(DOMAINS - {""})),
        )
    opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), None)
    if opset is None or not OPSET_MIN <= opset <= OPSET_MAX:
        raise ModelError(
            "unsupported opset",
            where=where,
            found=opset,
            allowed=f"{OPSET_MIN} to {OPSET_MAX}",
            remedy="export it again",
        )


def subgraphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """`graph` and every graph inside its nodes, outermost first."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from subgraphs(attribute.g)
            for child in attribute.graphs:
                yield from subgraphs(child)


def _read_external(tensor: onnx.TensorProto, model: Path) -> None:
    """Load one tensor's bytes; the file must be a plain file of its own inside the model's folder."""
    places = {entry.key: entry.value for entry in tensor.external_data}
    where = f"{model}: tensor {tensor.name}"
    source = confined(model.parent, places.get("location", ""), where, "external data")
    size = source.stat().st_size
    offset = _number(places, "offset", 0, where)
    length = _number(places, "length", size - offset, where)
    if offset + length > size:
        raise ModelError(
            f"external data ends behind {source.name}: expected {offset + length} bytes, have {size}", where=where
        )
    with source.open("rb") as file:
        file.seek(offset)
        tensor.raw_data = file.read(length)
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _number(places: dict[str, str], key: str, default: int, where: str) -> int:
    text = places.get(key)
    if text is None:
        return default
    if not text.isdecimal():
        raise ModelError(f"external data {key} is no number", where=where, found=text)
    return int(text)
