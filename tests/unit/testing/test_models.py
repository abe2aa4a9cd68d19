# SPDX-License-Identifier: Apache-2.0
"""The suite's own models are what their docstrings say."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dpfedge_reference.evaluator import evaluate

from dpfedge.testing.models import affine, chain, decaying, heavy, matrix, right_affine, rows


@pytest.mark.parametrize("model", [affine(2), affine("n"), decaying(), chain(3, 2), heavy(1)])
def test_model__is_valid(model: onnx.ModelProto) -> None:
    """The checker takes each."""
    onnx.checker.check_model(model)


def test_answers__are_right() -> None:
    """`right_affine` computes what the graph says."""
    for found, name in zip(evaluate(affine(3), {"x": rows(3)}), ("y", "z"), strict=True):
        np.testing.assert_allclose(found, right_affine(rows(3))[name], rtol=1e-5)


def test_chain__keeps_lengths() -> None:
    """Long products neither vanish nor overflow."""
    found = evaluate(chain(64, 4), {"x": rows(4)})[0]

    assert 1e-6 < float(np.abs(found).max()) < 1e6
    assert matrix(0).dtype == np.float32


def test_heavy__weighs_that_much() -> None:
    """One weight of the size asked for."""
    assert len(heavy(2).graph.initializer[0].raw_data) == 2 << 20
