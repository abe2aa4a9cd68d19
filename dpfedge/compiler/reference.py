# SPDX-License-Identifier: Apache-2.0
"""An imported graph and inputs in, the outputs of a plain run out: no optimiser, no lowering, no plugin, one thread.

`reference_bytes` takes out what a graph may do to be fast: its answers are what every target is measured by.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from dpfedge.backend.api import Array
from dpfedge.compiler.importer.onnx import subgraphs
from dpfedge.errors import ModelError
from dpfedge.tensors import TensorSpec

__all__ = ["Reference", "reference_bytes"]

_DRAWING = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_KINDS = {
    "float": "f32", "float16": "f16", "double": "f64", "bool": "bool", "int8": "i8", "uint8": "u8", "int16": "i16",
    "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64",
}  # fmt: skip


def reference_bytes(model: onnx.ModelProto) -> bytes:
    """`model` with block products computed in float32, whatever `accuracy_level` it asks for; it keeps its own."""
    asked = [
        (attribute, attribute.i)
        for node in _nodes(model)
        for attribute in node.attribute
        if attribute.name == "accuracy_level" and node.op_type == "MatMulNBits"
    ]
    for attribute, _ in asked:
        attribute.i = 0
    try:
        return bytes(model.SerializeToString())
    finally:
        for attribute, level in asked:
            attribute.i = level


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    return (node for graph in subgraphs(model.graph) for node in graph.node)


class Reference:
    """One graph in onnxruntime as its file describes it."""

    def __init__(self, name: str, model: onnx.ModelProto, folder: Path | None = None, *, asked: bool = False) -> None:
        """`folder` is where constants lie that the model keeps outside; `asked`: with the accuracy the model asks for.

        That is up to twenty times as fast, and what a target does.
        """
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.enable_mem_pattern = options.enable_cpu_mem_arena = False
        if folder is not None:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        self.where = f"graph {name}: reference run"
        self.draws = any(node.op_type in _DRAWING for node in _nodes(model))
        """Whether the graph draws random numbers."""
        try:
            data = bytes(model.SerializeToString()) if asked else reference_bytes(model)
            self._session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except _native_errors() as error:
            raise ModelError(" ".join(str(error).split()), where=self.where) from error
        self.inputs = tuple(self._spec(value) for value in self._session.get_inputs())
        self.outputs = tuple(self._spec(value) for value in self._session.get_outputs())

    def _spec(self, value: Any) -> TensorSpec:
        kind = value.type.removeprefix("tensor(").removesuffix(")")
        if kind not in _KINDS:
            raise ModelError("a port holds no numbers", where=f"{self.where}: {value.name}", found=value.type)
        dims = tuple(dim if type(dim) is int else dim or f"?{place}" for place, dim in enumerate(value.shape))
        return TensorSpec(value.name, _KINDS[kind], dims)

    def run(self, feeds: Mapping[str, Array], in_place: Mapping[str, str] | None = None) -> dict[str, Array]:
        """Every output for `feeds`; `in_place` maps an output to the input whose array it is written into.

        ModelError with onnxruntime's own words when these inputs cannot be run.
        """
        binding = self._session.io_binding()
        kept: dict[str, Array] = {}
        try:
            for name, array in feeds.items():
                kept[name] = np.ascontiguousarray(array).reshape(array.shape)
                binding.bind_input(name, "cpu", 0, array.dtype, array.shape, kept[name].ctypes.data)
            names = [spec.name for spec in self.outputs]
            for name in names:
                source = (in_place or {}).get(name)
                if source is None:
                    binding.bind_output(name, "cpu")
                else:
                    target = kept[source]
                    binding.bind_output(name, "cpu", 0, target.dtype, target.shape, target.ctypes.data)
            self._session.run_with_iobinding(binding)
            values: list[Any] = binding.get_outputs()
            return {
                name: kept[in_place[name]] if in_place and name in in_place else np.array(value.numpy())
                for name, value in zip(names, values, strict=True)
            }
        except _native_errors() as error:
            raise ModelError(" ".join(str(error).split()), where=self.where) from error


def _native_errors() -> tuple[type[BaseException], ...]:
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    names = ("EPFail", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NotImplemented",
             "RuntimeException")  # fmt: skip
    return (*(getattr(native, name) for name in names), RuntimeError, ValueError)
