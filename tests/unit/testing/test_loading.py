# SPDX-License-Identifier: Apache-2.0
"""A model on a backend as a package brings it: weights in one read-only section."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from dpfedge_reference import ReferenceBackend

from dpfedge.testing.loading import SECTION, load, lowered, view
from dpfedge.testing.models import affine, right_affine, rows

BACKEND = ReferenceBackend()
DEVICE = BACKEND.devices(Path("/"))[0]


def test_view__maps_weights_read_only() -> None:
    """At a multiple of 64 bytes, under the name the graph uses."""
    graph = view(BACKEND, lowered(BACKEND, DEVICE, affine(2)), "affine")

    assert graph.name == "affine"
    assert graph.weights[SECTION].readonly
    assert SECTION.encode() in bytes(graph.code)


def test_load__runs() -> None:
    """One call from model to executable."""
    found = load(BACKEND, DEVICE, affine("n")).run({"x": rows(2)})

    np.testing.assert_allclose(found["y"], right_affine(rows(2))["y"], rtol=1e-5)
