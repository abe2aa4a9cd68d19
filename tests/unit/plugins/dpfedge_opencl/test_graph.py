# SPDX-License-Identifier: Apache-2.0
"""A lowered graph and its bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import cbor2
import dpfedge_opencl
import numpy as np
import pytest
from dpfedge_opencl.graph import LAYOUTS, SEGMENT, VERSION, place, read, write
from made_nodes import graph_of, lowered, model, node, port

from dpfedge.errors import BackendError


def _made() -> object:
    weight = np.arange(600, dtype=np.float32).reshape(2, 300)
    return model([node("Add", "x w", "y")], [port("x", ["n", 300])], [port("y", None)], {"w": weight[:1]})


def test_write__is_what_read_reads() -> None:
    """Every field comes back."""
    graph = graph_of(_made())  # type: ignore[arg-type]
    again = read(write(graph), "graph made")
    assert again == graph
    assert graph.constants["w"].place == ("weights.test", 0, 1200)
    assert graph.constants["w"].data is None


def test_read__damaged_bytes_are_named() -> None:
    """Whatever is cut or changed."""
    data = write(graph_of(_made()))  # type: ignore[arg-type]
    for bad in (b"", data[:-3], b"\xff" + data[1:], cbor2.dumps({"version": 1, "layouts": LAYOUTS}), cbor2.dumps([1])):
        with pytest.raises(BackendError, match="damaged"):
            read(bad, "graph made")


def test_read__another_version_says_what_to_do() -> None:
    """Compile again."""
    with pytest.raises(BackendError, match="another version"):
        read(cbor2.dumps({"version": 99}), "graph made")


@pytest.mark.parametrize("layouts", [{}, {"layouts": LAYOUTS + 1}])
def test_read__other_layouts_are_refused(layouts: dict[str, int]) -> None:
    """With both numbers and what to do, before any array is looked at."""
    document = cbor2.loads(write(graph_of(_made())))  # type: ignore[arg-type]
    assert document.pop("layouts") == LAYOUTS
    with pytest.raises(BackendError) as caught:
        read(cbor2.dumps(document | layouts), "graph made")
    text = str(caught.value)
    assert f"compiled by dpfedge-opencl layouts {layouts.get('layouts', 0)}" in text
    assert f"this one reads {LAYOUTS}" in text
    assert "compile the package again" in text


PACKED = {1: "745e66b121e1161d", 2: "5e3d79386fad4189"}
"""Layouts → what the weights of the models below look like. Another digest means: raise `LAYOUTS`, and add a line."""


def _packed() -> str:
    def numbers(*shape: int, kind: str = "f4") -> np.ndarray[Any, np.dtype[Any]]:
        return (np.arange(np.prod(shape)) % 251).astype(kind).reshape(shape)

    x, image = port("x", ["n", 64]), port("x", [1, 8, "h", 9])
    blocks = {"w": numbers(48, 2, 16, kind="u1"), "s": numbers(96)}
    lstm = {"w": numbers(1, 64, 64), "r": numbers(1, 64, 16), "b": numbers(1, 128)}
    models = (
        ([node("MatMul", "x w", "y")], x, {"w": numbers(64, 48)}),
        ([node("Gemm", "x w b", "y", transB=1)], x, {"w": numbers(48, 64), "b": numbers(48)}),
        ([node("ms:MatMulNBits", "x w s", "y", K=64, N=48, bits=4, block_size=32)], x, blocks),
        (
            [node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z", "y")], x,
            {"w": numbers(64, 48, kind="i1")},
        ),
        ([node("Conv", "x w", "y", kernel_shape=[3, 3])], image, {"w": numbers(16, 8, 3, 3)}),
        ([node("Conv", "x w", "y", kernel_shape=[3, 3], group=8)], image, {"w": numbers(8, 1, 3, 3)}),
        ([node("ConvTranspose", "x w", "y", kernel_shape=[2, 2], strides=[2, 2])], image, {"w": numbers(8, 16, 2, 2)}),
        ([node("LSTM", "x w r b", "y", hidden_size=16)], port("x", ["n", 1, 64]), lstm),
    )  # fmt: skip
    digest = hashlib.sha256()
    for nodes, given, weights in models:
        kind = "i4" if nodes[-1].op_type == "MatMulInteger" else "f4"
        code = lowered(model(nodes, [given], [port("y", None, kind)], weights))
        for name, array in sorted(code.weights.items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        digest.update(repr([(one.op, one.attrs) for one in read(code.code, "graph made").nodes]).encode())
    return digest.hexdigest()[:16]


def test_layouts__are_those_of_this_number() -> None:
    """A packing that changes without its number would be read as what it is not."""
    assert PACKED[LAYOUTS] == _packed()


def test_place__a_weight_without_a_place_is_an_error() -> None:
    """By its name."""
    graph = read(lowered(_made()).code, "graph made")  # type: ignore[arg-type]
    with pytest.raises(BackendError, match="no place"):
        place(graph, {}, [])


def test_key__leaves_out_what_a_plan_does_not_depend_on() -> None:
    """The length of an attention mask, whose shape alone is read, and that only as a value."""
    nodes = [
        node("Shape", "mask", "shape"),
        node("Cast", "shape", "total", to=1),
        node("Mul", "x total", "y"),
    ]
    graph = graph_of(model(nodes, [port("x", ["n", 2]), port("mask", [1, "t"])], [port("y", ["n", 2])]))
    assert graph.late == {"mask"}
    first, second = (graph.key({"x": (3, 2), "mask": (1, size)}, frozenset()) for size in (4, 5))
    assert first == second
    assert first != graph.key({"x": (4, 2), "mask": (1, 4)}, frozenset())


def test_page__names_every_key() -> None:
    """GRAPH.md is what another program would read these bytes by."""
    page = (Path(dpfedge_opencl.__file__).parent / "GRAPH.md").read_text()
    document = cbor2.loads(write(graph_of(_made())))  # type: ignore[arg-type]
    assert all(f"`{key}`" in page for key in document)
    assert f"| `version` | {VERSION};" in page
    assert f"`{SEGMENT}`" in page
