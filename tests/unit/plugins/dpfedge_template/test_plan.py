# SPDX-License-Identifier: Apache-2.0
"""Plans: compiled from ONNX, refused by name, weights viewed where they lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dpfedge_template import TemplateBackend
from dpfedge_template.plan import finish, lower

from dpfedge.backend.api import LowerRequest
from dpfedge.errors import BackendError, Unsupported
from dpfedge.testing.cases import Case, Op
from dpfedge.testing.loading import load
from dpfedge.testing.models import affine, right_affine, rows

BACKEND = TemplateBackend()


def test_load__runs_the_plan() -> None:
    """The suite's affine model."""
    executable = load(BACKEND, BACKEND.devices(Path("/"))[0], affine("n"))

    np.testing.assert_allclose(executable.run({"x": rows(3)})["y"], right_affine(rows(3))["y"], rtol=1e-4, atol=1e-5)


def test_lower__operators_and_dtypes_it_lacks() -> None:
    """Permanent, and named."""
    softmax = Case(Op("Softmax", {"a": (2, 3)}), "f32")
    with pytest.raises(Unsupported, match="found Softmax; allowed Add, Sub"):
        lower(LowerRequest("g", softmax.model().SerializeToString(), "any", frozenset()))
    whole = Case(Op("Add", {"a": (2,), "b": (2,)}), "i64")
    model = whole.model([np.zeros(2, np.int64)])
    with pytest.raises(Unsupported, match="graph g: a: it has no such dtype"):
        lower(LowerRequest("g", model.SerializeToString(), "any", frozenset()))


def test_finish__needs_every_place() -> None:
    """A weight without one is named."""
    with pytest.raises(BackendError, match="weight has no place; found one"):
        finish(lower(LowerRequest("g", affine(1).SerializeToString(), "any", frozenset())), {})
