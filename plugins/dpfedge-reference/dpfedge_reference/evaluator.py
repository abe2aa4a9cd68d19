# SPDX-License-Identifier: Apache-2.0
"""The evaluator: a model and the bytes of its sections in, `onnx.reference` with our operators added, out.

It reads constants where they lie and opens no file.
"""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx.external_data_helper import ExternalDataInfo
from onnx.reference import ReferenceEvaluator

from dpfedge.backend.api import Array, GraphView
from dpfedge.backend.host import HostExecutable
from dpfedge.errors import BackendError
from dpfedge_reference.attention import ATTENTION
from dpfedge_reference.contrib import CONTRIB

__all__ = ["evaluate", "load", "mapped_errors", "prepare"]

_FOREIGN = (
    ArithmeticError, AssertionError, AttributeError, DecodeError, ImportError, LookupError, MemoryError,
    NotImplementedError, RuntimeError, TypeError, ValueError, struct.error,
)  # fmt: skip


@contextmanager
def mapped_errors(where: str) -> Iterator[None]:
    """Turn what NumPy, onnx and operators raise into a BackendError that names the graph."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():  # infinities are answers like others
            warnings.simplefilter("ignore")
            yield
    except _FOREIGN as error:
        cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
        raise BackendError(" ".join(f"{error}{cause}".split())[:400] or type(error).__name__, where=where) from error


def prepare(model: onnx.ModelProto, sections: Mapping[str, memoryview]) -> ReferenceEvaluator:
    """An evaluator of `model`, whose unused outputs get names; RuntimeError or its children for an unknown operator."""
    _name_unused(model.graph)

    class Mapped(ReferenceEvaluator):
        def retrieve_external_data(self, initializer: onnx.TensorProto) -> Array:
            return _view(initializer, sections)

    return Mapped(model, new_ops=[*CONTRIB, *ATTENTION])


def _name_unused(graph: onnx.GraphProto) -> None:
    """Without names, `onnx.reference` would take their values for inputs that are left out."""
    for number, node in enumerate(graph.node):
        for index, name in enumerate(node.output):
            node.output[index] = name or f"unused.{number}.{index}"
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _name_unused(inner)


def _view(tensor: onnx.TensorProto, sections: Mapping[str, memoryview]) -> Array:
    info = ExternalDataInfo(tensor)
    dtype, count = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type), math.prod(tensor.dims)
    offset, size = int(info.offset or 0), count * dtype.itemsize
    section = sections.get(info.location)
    if section is None or offset + size > section.nbytes:
        raise ValueError(f"constant {tensor.name} lies outside the package: {info.location}, {offset} + {size} bytes")
    return np.frombuffer(section, dtype, count, offset).reshape(tuple(tensor.dims))


def evaluate(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Every output of a model that has its constants inside; BackendError with what an operator said."""
    with mapped_errors(f"graph {model.graph.name}"):
        found: Any = prepare(model, {}).run(None, dict(feeds))
        return [np.asarray(one) for one in found]


def load(graph: GraphView) -> HostExecutable:
    """A lowered graph with its constants viewed where the package maps them."""
    where = f"graph {graph.name}"
    with mapped_errors(where):
        model = onnx.ModelProto.FromString(bytes(graph.code))
        if not model.graph.node:
            raise ValueError("there is no node in it")
        evaluator = prepare(model, graph.weights)

    def compute(feeds: Mapping[str, Array]) -> Sequence[Any]:
        with mapped_errors(where):
            found: Any = evaluator.run(None, dict(feeds))
        return list(found)

    return HostExecutable(graph, compute)
