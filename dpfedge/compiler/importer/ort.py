# SPDX-License-Identifier: Apache-2.0
"""An ORT-format file in, the same graph as an ONNX ModelProto out; it optimises nothing.

onnxruntime itself reads its own format and writes ONNX; graphs it leaves without a name get one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx

from dpfedge.compiler.importer.onnx import subgraphs
from dpfedge.errors import ModelError

__all__ = ["import_ort", "is_ort"]

_MAGIC = b"ORTM"  # the FlatBuffers file identifier, at offset 4


def is_ort(path: Path) -> bool:
    """Whether `path` begins as an ORT-format file does."""
    with path.open("rb") as file:
        return file.read(8)[4:] == _MAGIC


def import_ort(path: Path) -> onnx.ModelProto:
    """Read `path`; ModelError for another format or damaged bytes."""
    with path.open("rb") as file:
        head = file.read(8)
    if head[4:] != _MAGIC:
        raise ModelError("not an ORT-format file", where=str(path), found=head.hex(), allowed="ORTM at offset 4")
    with tempfile.TemporaryDirectory(prefix="dpfedge-ort-") as folder:
        target = Path(folder, "model.onnx")
        _convert(path, target)
        model = onnx.load(str(target))
    for index, graph in enumerate(subgraphs(model.graph)):
        graph.name = graph.name or f"graph_{index}"
    return model


def _convert(source: Path, target: Path) -> None:
    import os

    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime as ort
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.save_model_format", "ONNX")
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.optimized_model_filepath = str(target)
    try:
        ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    except (
        native.Fail,
        native.InvalidArgument,
        native.InvalidGraph,
        native.NotImplemented,
        native.RuntimeException,
    ) as error:
        raise ModelError(" ".join(str(error).split()), where=str(source), remedy="fetch the file again") from error
