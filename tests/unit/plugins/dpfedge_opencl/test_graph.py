# SPDX-License-Identifier: Apache-2.0
"""A lowered graph and its bytes."""

from __future__ import annotations

from pathlib import Path

import cbor2
import dpfedge_opencl
import numpy as np
import pytest
from dpfedge_opencl.graph import SEGMENT, VERSION, place, read, write
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
    for bad in (b"", data[:-3], b"\xff" + data[1:], cbor2.dumps({"version": 1}), cbor2.dumps([1])):
        with pytest.raises(BackendError, match="damaged"):
            read(bad, "graph made")


def test_read__another_version_says_what_to_do() -> None:
    """Compile again."""
    with pytest.raises(BackendError, match="another version"):
        read(cbor2.dumps({"version": 99}), "graph made")


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
