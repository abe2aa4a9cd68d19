# SPDX-License-Identifier: Apache-2.0
"""What a caller gives a drawn graph, checked before anything is sent: options, ports and messages in, or InputError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.config import nearest
from dpfedge.errors import InputError
from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.messages import TURN_MAX, encoded
from dpfedge.stage.ports import accepts
from dpfedge.tensors import dtype_name

__all__ = ["check_options", "message_for", "place_of"]

_TIME_MAX = 2**63 - 1


def check_options(graph: Graph, options: Mapping[str, Any]) -> None:
    """Options are a map for a stage that there is; what is in it is the stage's to judge."""
    if not isinstance(options, Mapping):
        raise InputError("options are a map", found=type(options).__name__, allowed="{stage: {name: value}}")
    for name, given in options.items():
        where = f"options of {name}"
        if name not in graph.names:
            remedy = nearest(str(name), graph.names)
            raise InputError("no such stage", where=where, allowed=", ".join(graph.names), remedy=remedy)
        if not isinstance(given, Mapping):
            raise InputError("options are a map", where=where, found=type(given).__name__, allowed="{name: value}")
        encoded(given, where)


def place_of(graph: Graph, port: str) -> tuple[str, str]:
    """(stage, port) of `stage.port`, an input that the caller feeds."""
    stage, _, name = port.partition(".")
    known = [f"{a}.{b}" for a, b in graph.drawn.given]
    if (stage, name) not in graph.drawn.given:
        raise InputError(
            "no such input of the pipeline", where="request", found=port, allowed=", ".join(known) or "none",
            remedy=nearest(port, known),
        )  # fmt: skip
    return stage, name


def message_for(graph: Graph, port: str, data: Any, turn: int, captured_ns: int) -> Array | bytes:
    """`data` as it goes into the link: a text and a map as bytes, an array as it is."""
    stage, name = place_of(graph, port)
    for word, number, most in (("turn", turn, TURN_MAX), ("captured_ns", captured_ns, _TIME_MAX)):
        if type(number) is not int or not 0 <= number <= most:
            raise InputError(
                f"{word} is out of range", where=port, found=number, allowed=f"a whole number, 0 to {most}"
            )
    spec = graph.node(stage).ports.inputs[name]
    if isinstance(data, np.ndarray | np.generic):
        array: Array = np.asarray(data)
        dtype, shape = _name(array), array.shape
        given: Array | bytes = array
    elif isinstance(data, str | bytes | bytearray | memoryview | Mapping):
        given = _bytes(data, port)
        dtype, shape = "bytes", (len(given),)
    else:
        remedy = "make an array of it: numpy.asarray(data, dtype)"
        allowed = "an array, a text, bytes or a map"
        raise InputError("nothing a port takes", where=port, found=type(data).__name__, allowed=allowed, remedy=remedy)
    if not accepts(spec, dtype, shape) and not (dtype == spec.dtype == "bytes" and not spec.shape):
        raise InputError("the port takes something else", where=port, found=f"{dtype}{list(shape)}", allowed=str(spec))
    return given


def _bytes(data: str | bytes | bytearray | memoryview | Mapping[str, Any], port: str) -> bytes:
    if isinstance(data, str):
        return data.encode("utf-8", "surrogatepass")
    return encoded(data, port) if isinstance(data, Mapping) else bytes(data)


def _name(array: Array) -> str:
    try:
        return dtype_name(array.dtype)
    except KeyError:
        return str(array.dtype)
