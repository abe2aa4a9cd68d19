# SPDX-License-Identifier: Apache-2.0
"""A fake of the package tensorrt as JetPack 6 has it: what it is asked to build it "runs" with a Python function.

Not an emulator: an engine is the marked bytes of the model, and running one doubles its first input into each output.
What it pretends to be is set with its attributes: how many DLAs there are, which nodes they refuse, what it lies about.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

__version__ = "10.3.0"
CORES = 2
REFUSES = ""
"""An operator the builder finds it cannot run on a DLA, whatever the lists say."""
RUNS = True
MARK = b"fake engine\0"
LAST: dict[str, Any] = {}
"""What the last builder's configuration was, and the core of the last runtime."""


class ILogger:
    """The base of loggers."""

    class Severity(enum.Enum):
        """As TensorRT has them."""

        INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)

    def log(self, severity: Severity, text: str) -> None:
        """Takes a line."""


class DeviceType(enum.Enum):
    """Where layers run."""

    GPU, DLA = range(2)


class BuilderFlag(enum.Enum):
    """Some of them."""

    FP16, GPU_FALLBACK = range(2)


class MemoryPoolType(enum.Enum):
    """Some of them."""

    WORKSPACE = 0


class NetworkDefinitionCreationFlag(enum.IntEnum):
    """Some of them."""

    EXPLICIT_BATCH = 0


class TensorIOMode(enum.Enum):
    """Of a port."""

    NONE, INPUT, OUTPUT = range(3)


def nptype(kind: Any) -> Any:
    """NumPy's type."""
    return kind


class Builder:
    """Builds engines."""

    def __init__(self, logger: ILogger) -> None:
        self.logger, self.num_DLA_cores = logger, CORES

    def create_network(self, flags: int) -> dict[str, Any]:
        """An empty one."""
        return {"flags": flags}

    def create_builder_config(self) -> Any:
        """With the flag that lets the GPU run what the DLA does not, as if a build had left it on."""
        return _Config()

    def build_serialized_network(self, network: dict[str, Any], config: Any) -> bytes | None:
        """None, and a line in the log, where a node would have to run on the GPU and must not."""
        LAST["config"] = config
        refused = [node for node in network["model"].graph.node if node.op_type == REFUSES]
        if refused and BuilderFlag.GPU_FALLBACK not in config.flags:
            name = refused[0].name
            self.logger.log(ILogger.Severity.ERROR, f"{name}: Layer cannot run on DLA, GPU fallback is not enabled")
            return None
        return MARK + network["model"].SerializeToString()


class _Config:
    def __init__(self) -> None:
        self.default_device_type, self.DLA_core = DeviceType.GPU, -1
        self.flags = {BuilderFlag.GPU_FALLBACK}

    def set_flag(self, flag: BuilderFlag) -> None:
        self.flags.add(flag)

    def clear_flag(self, flag: BuilderFlag) -> None:
        self.flags.discard(flag)

    def set_memory_pool_limit(self, pool: MemoryPoolType, size: int) -> None:
        self.workspace = size


class OnnxParser:
    """Reads models."""

    def __init__(self, network: dict[str, Any], logger: ILogger) -> None:
        self.network, self.errors = network, list[str]()

    @property
    def num_errors(self) -> int:
        """How many."""
        return len(self.errors)

    def get_error(self, index: int) -> str:
        """One of them."""
        return self.errors[index]

    def parse(self, data: bytes) -> bool:
        """Whether it could."""
        model = onnx.ModelProto.FromString(data)
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
            self.errors.append("Failed to import initializer")
            return False
        self.network["model"] = model
        return True


class Runtime:
    """Opens engines."""

    def __init__(self, logger: ILogger) -> None:
        self.logger, self.num_DLA_cores, self.DLA_core = logger, CORES, 0

    def deserialize_cuda_engine(self, data: bytes) -> Any:
        """None, and a line in the log, for what is none of its engines."""
        LAST["core"] = self.DLA_core
        if not data.startswith(MARK):
            self.logger.log(ILogger.Severity.ERROR, "Serialization assertion stdVersionRead == kSERIALIZATION_VERSION")
            return None
        return _Engine(onnx.ModelProto.FromString(data.removeprefix(MARK)))


class _Engine:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.ports = [*model.graph.input, *model.graph.output]
        self.inputs = len(model.graph.input)

    @property
    def num_io_tensors(self) -> int:
        return len(self.ports)

    def get_tensor_name(self, index: int) -> str:
        return str(self.ports[index].name)

    def _find(self, name: str) -> int:
        return [port.name for port in self.ports].index(name)

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if self._find(name) < self.inputs else TensorIOMode.OUTPUT

    def get_tensor_shape(self, name: str) -> list[int]:
        return [dim.dim_value for dim in self.ports[self._find(name)].type.tensor_type.shape.dim]

    def get_tensor_dtype(self, name: str) -> Any:
        return onnx.helper.tensor_dtype_to_np_dtype(self.ports[self._find(name)].type.tensor_type.elem_type)

    def create_execution_context(self) -> Any:
        return _Context(self)


class _Context:
    def __init__(self, engine: _Engine) -> None:
        self.engine, self.places = engine, dict[str, int]()

    def set_tensor_address(self, name: str, address: int) -> None:
        self.places[name] = address

    def execute_async_v3(self, stream: int) -> bool:
        if RUNS:
            names = [port.name for port in self.engine.ports]
            source = self._array(names[0])
            for name in names[self.engine.inputs :]:
                self._array(name)[...] = 2 * source
        return RUNS

    def _array(self, name: str) -> Any:
        shape, kind = self.engine.get_tensor_shape(name), np.dtype(self.engine.get_tensor_dtype(name))
        size = int(np.prod(shape)) * kind.itemsize
        place: Callable[[], Any] = (ctypes.c_char * size).from_address(self.places[name])  # type: ignore[assignment]
        return np.frombuffer(place, kind).reshape(shape)  # type: ignore[call-overload]
