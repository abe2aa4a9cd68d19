# SPDX-License-Identifier: Apache-2.0
"""Samples become the numbers of a report."""

from __future__ import annotations

import json
import socket

import pytest

from dpfedge.bench.measure import Series, machine, median_ratio


def test_summary__of_known_samples() -> None:
    """Percentiles lie between samples; everything is plain data."""
    found = Series("turn", "ms", tuple(float(value) for value in range(1, 101))).summary()

    assert (found["name"], found["unit"], found["n"]) == ("turn", "ms", 100)
    assert (found["p50"], found["min"], found["max"]) == (50.5, 1.0, 100.0)
    assert found["p90"] == pytest.approx(90.1)
    assert found["p99"] == pytest.approx(99.01)
    assert found["sigma"] == pytest.approx(28.866, abs=1e-3)
    assert json.loads(json.dumps(found)) == found


def test_summary__without_samples() -> None:
    """It says so instead of making numbers up."""
    assert Series("turn", "ms", ()).summary() == {"name": "turn", "unit": "ms", "n": 0}


def test_median_ratio__divides_slow_minutes_out() -> None:
    """Neighbours share their noise: rounds ten times as slow change nothing."""
    assert median_ratio([1, 10, 2], [2, 20, 4]) == 0.5
    assert median_ratio([1, 1, 9], [2, 2, 2]) == 0.5
    with pytest.raises(ValueError, match="zip"):
        median_ratio([1], [1, 2])


def test_machine__is_described_without_its_name() -> None:
    """What ran, on what; who owns it is nobody's business."""
    found = machine()

    assert found["cores"] >= 1
    assert set(found["libraries"]) == {"dpfedge", "onnxruntime", "numpy"}
    assert socket.gethostname() not in json.dumps(found)
