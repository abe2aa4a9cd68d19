# SPDX-License-Identifier: Apache-2.0
"""TensorRT itself, for DLAs: a graph in, an engine that runs on one DLA and nowhere else out; and the engine opened.

onnxruntime's TensorRT provider is not used for a DLA: it goes to the GPU where there is no DLA, takes core 0 where the
core asked for is none, and always lets the GPU run what the DLA does not, with a line in the log at most. Here each of
these is an error, with TensorRT's own words. It uses JetPack's package `tensorrt`; building also needs `onnx`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpfedge.backend.api import GraphView
from dpfedge.backend.bounded import bounded
from dpfedge.backend.loader import import_error
from dpfedge.errors import BackendError, Unavailable, Unsupported
from dpfedge_jetson.devices import WHERE

__all__ = ["Engine", "build", "open_engine", "tensorrt"]

_LOAD_S, _BUILD_S = 60.0, 1800.0
_WORKSPACE = 1 << 28  # bytes the builder may take to try things out
_TOLD_MAX = 3
_WITHOUT_DLA = "TensorRT up to 10.7 (JetPack 6) and 11.4.1 and later (JetPack 7.2.2) run on Orin's DLAs"


def tensorrt() -> Any:
    """The package; Unavailable when it is not there, or hangs, ends or crashes a process that loads it.

    A child tries that first, because loading cannot be bounded here: Python's lock is held.
    """
    if sys.modules.get("tensorrt") is None and (why := import_error("tensorrt")):
        raise Unavailable(
            "TensorRT cannot be loaded", where=WHERE, found=why,
            remedy="install python3-libnvinfer of the JetPack, and let this environment see it",
        )  # fmt: skip
    return importlib.import_module("tensorrt")


class Engine:
    """An engine opened on a DLA, with TensorRT's words of what goes wrong."""

    def __init__(self, module: Any, runtime: Any, engine: Any, words: list[str], where: str) -> None:
        """`runtime` has to live as long as the engine it opened."""
        self.module, self.runtime, self.engine, self.words, self.where = module, runtime, engine, words, where

    def ports(self) -> Sequence[tuple[str, bool, tuple[int, ...], np.dtype[Any]]]:
        """(name, whether it is an input, sizes, dtype) of each port."""
        names = [self.engine.get_tensor_name(index) for index in range(self.engine.num_io_tensors)]
        mode = self.module.TensorIOMode.INPUT
        return [
            (
                name, self.engine.get_tensor_mode(name) == mode, tuple(self.engine.get_tensor_shape(name)),
                np.dtype(self.module.nptype(self.engine.get_tensor_dtype(name))),
            )
            for name in names
        ]  # fmt: skip

    def context(self) -> Any:
        """Something that runs the engine, one run at a time."""
        found = self.engine.create_execution_context()
        if found is None:
            raise failed("the engine cannot be run", self.where, self.words)
        return found


def build(graph: GraphView, core: int) -> bytes:
    """An engine for DLA `core`; Unsupported with TensorRT's words when one node of it would have to run elsewhere."""
    model, where = _whole(graph), f"graph {graph.name}"
    module = tensorrt()
    return bounded(lambda: _build(module, model, core, where), f"{where}: building for the DLA", _BUILD_S)


def _build(module: Any, model: bytes, core: int, where: str) -> bytes:
    logger, words = _logger(module)
    builder = module.Builder(logger)
    _check_cores(module, int(builder.num_DLA_cores), core)
    explicit = getattr(module.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)
    network = builder.create_network(0 if explicit is None else 1 << int(explicit))
    parser = module.OnnxParser(network, logger)
    if not parser.parse(model):
        told = [str(parser.get_error(index)) for index in range(parser.num_errors)]
        raise failed("TensorRT does not read the graph", where, told or words, Unsupported)
    config = builder.create_builder_config()
    config.set_memory_pool_limit(module.MemoryPoolType.WORKSPACE, _WORKSPACE)
    config.default_device_type, config.DLA_core = module.DeviceType.DLA, core
    if half := getattr(module.BuilderFlag, "FP16", None):  # TensorRT 11 takes the formats of the graph alone
        config.set_flag(half)
    config.clear_flag(module.BuilderFlag.GPU_FALLBACK)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise failed("the DLA does not run this graph whole", where, words, Unsupported)
    return bytes(engine)


def open_engine(data: memoryview, core: int, where: str) -> Engine:
    """The engine, on DLA `core`; BackendError with TensorRT's words when it is of another TensorRT or device."""
    module = tensorrt()
    return bounded(lambda: _open(module, data, core, where), f"{where}: opening the engine", _LOAD_S)


def _open(module: Any, data: memoryview, core: int, where: str) -> Engine:
    logger, words = _logger(module)
    runtime = module.Runtime(logger)
    _check_cores(module, int(runtime.num_DLA_cores), core)
    runtime.DLA_core = core
    engine = runtime.deserialize_cuda_engine(bytes(data))
    if engine is None:
        raise failed("the engine is not one of this DLA and TensorRT", where, words, remedy="run `dpfedge seal` again")
    return Engine(module, runtime, engine, words, where)


def _check_cores(module: Any, count: int, core: int) -> None:
    if count == 0:
        raise Unavailable(
            "this TensorRT does not know of a DLA", where=WHERE, found=f"TensorRT {module.__version__}",
            allowed=_WITHOUT_DLA, remedy="place the stage on the GPU",
        )  # fmt: skip
    if core >= count:
        raise Unavailable("there is no such DLA", where=f"{WHERE}: DLA {core}", found=f"{count} of them")


def failed(
    what: str, where: str, words: Sequence[str], kind: type[BackendError] = BackendError, remedy: str | None = None
) -> BackendError:
    """An error with the last of what TensorRT logged."""
    return kind(what, where=where, found="; ".join(words[-_TOLD_MAX:]) or "no word of why", remedy=remedy)


def _logger(module: Any) -> tuple[Any, list[str]]:
    """A logger that keeps errors and warnings."""
    words: list[str] = []
    severities = module.ILogger.Severity

    def log(self: Any, severity: Any, text: str) -> None:
        if severity in (severities.INTERNAL_ERROR, severities.ERROR, severities.WARNING):
            words.append(" ".join(str(text).split())[:400])
            del words[:-64]

    def begin(self: Any) -> None:
        module.ILogger.__init__(self)

    kind: Callable[[], Any] = type("Logger", (module.ILogger,), {"log": log, "__init__": begin})
    return kind(), words


def _whole(graph: GraphView) -> bytes:
    """The graph with its weights inside, as TensorRT's parser wants it."""
    try:
        import onnx
    except ImportError as error:
        remedy = "pip install 'dpfedge[compile]', or seal where it is installed"
        raise Unavailable("building an engine needs onnx", where=f"graph {graph.name}", remedy=remedy) from error
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.ModelProto.FromString(bytes(graph.code))
    except DecodeError as error:
        raise BackendError("this is no lowered graph", where=f"graph {graph.name}", found=str(error)) from error
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            place = {entry.key: entry.value for entry in tensor.external_data}
            view, offset = graph.weights[place["location"]], int(place["offset"])
            tensor.raw_data = bytes(view[offset : offset + int(place["length"])])
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    return bytes(model.SerializeToString(deterministic=True))
