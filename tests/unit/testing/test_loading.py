# SPDX-License-Identifier: Apache-2.0
"""A model on a backend as a package brings it: weights in one read-only section."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from dpfedge_reference import ReferenceBackend

from dpfedge.backend.api import Array, Budget, Device, GraphView, Identity
from dpfedge.testing.loading import SECTION, load, lowered, sealed, view
from dpfedge.testing.models import affine, right_affine, rows

BACKEND = ReferenceBackend()
DEVICE = BACKEND.devices(Path("/"))[0]


def test_view__maps_weights_read_only() -> None:
    """At a multiple of 64 bytes, under the name the graph uses."""
    graph = view(BACKEND, lowered(BACKEND, DEVICE, affine(2)), "affine")

    assert graph.name == "affine"
    assert graph.weights[SECTION].readonly
    address = np.frombuffer(graph.weights[SECTION], np.uint8).__array_interface__["data"][0]
    (line,) = (one for one in Path("/proc/self/maps").read_text().splitlines() if one.startswith(f"{address:x}-"))
    assert line.split()[1] == "r--s"  # a backend that writes there fails here as it would in a car
    assert SECTION.encode() in bytes(graph.code)


def test_load__runs() -> None:
    """One call from model to executable."""
    found = load(BACKEND, DEVICE, affine("n")).run({"x": rows(2)})

    np.testing.assert_allclose(found["y"], right_affine(rows(2))["y"], rtol=1e-5)


class Sealing(ReferenceBackend):
    """The reference, which keeps a graph's code as what it built."""

    compares_sealed = False

    def identity(self, device: Device) -> Identity:
        return Identity({}, {})

    def seal(self, graph: GraphView, device: Device, budget: Budget) -> Mapping[str, Sequence[Array]]:
        return {"a": [np.arange(3, dtype=np.uint8)], "b": [np.frombuffer(graph.code, np.uint8), np.ones(1, np.uint8)]}


def test_sealed__lies_as_in_a_sidecar() -> None:
    """Pieces joined, each thing at a multiple of 64 KiB of an open file."""
    graph = view(BACKEND, lowered(BACKEND, DEVICE, affine(2)), "affine")

    with sealed(Sealing(), DEVICE, graph) as found:
        assert bytes(found.sealed["a"].data) == bytes([0, 1, 2])
        assert bytes(found.sealed["b"].data) == bytes(graph.code) + b"\1"
        assert found.sealed["b"].offset == 65_536
        assert os.pread(found.sealed["a"].file, 3, found.sealed["a"].offset) == bytes([0, 1, 2])
    with sealed(BACKEND, DEVICE, graph) as found:
        assert found.sealed == {}
