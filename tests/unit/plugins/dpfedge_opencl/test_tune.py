# SPDX-License-Identifier: Apache-2.0
"""The auto-tuner."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from dpfedge_opencl.graph import Graph, read
from dpfedge_opencl.lower import lower
from dpfedge_opencl.plan import Launch, Plan
from dpfedge_opencl.runtime import open_runtime
from dpfedge_opencl.specialise import specialise
from dpfedge_opencl.tune import Offers, Stopwatch, tune
from made_flavours import FLAVOURS, answers, floats, one, played
from made_nodes import device

from dpfedge.backend.api import LowerRequest
from dpfedge.testing.loading import view

FACTS, FEATURES = FLAVOURS["wide"]
FEEDS = {"x": floats(1, 16, 40, seed=1)}


def _model() -> onnx.ModelProto:
    return one("Conv", FEEDS, {"w": floats(24, 16, 3, seed=2), "b": floats(24, seed=3)}, pads=[1, 1])


def _graph() -> Graph:
    backend, _ = device()
    made = lower(LowerRequest("made", _model().SerializeToString(), FACTS.arch, FEATURES))
    return read(view(backend, made, "made").code, "made")


def _plan(graph: Graph, tuning: Mapping[str, Any]) -> Plan:
    facts = dataclasses.replace(played(FACTS, open_runtime(device()[1]).facts), tuning=tuning)
    return specialise(graph, {"x": (1, 16, 40)}, frozenset(), facts)


def test_tune__takes_what_is_faster_and_nothing_else() -> None:
    """By a clock that likes many groups: the key names family and shape, the values are one of the candidates."""
    graph = _graph()

    def plan(tuning: Mapping[str, Any]) -> Plan:
        return _plan(graph, tuning)

    def many(plan: Plan, node: str) -> float:
        return 1 / sum(float(np.prod(one.global_size)) for one in plan.steps if isinstance(one, Launch))

    def all_alike(plan: Plan, node: str) -> float:
        return 1.0

    found = tune(plan, many)
    assert found == tune(plan, many)
    assert list(found) == ["conv 1x24x16x1x3x40"]
    assert found["conv 1x24x16x1x3x40"][0] == 1
    assert tune(plan, all_alike) == {}
    assert tune(plan, many, most=-1.0) == {}


def test_tune__changes_no_bit() -> None:
    """Every candidate of a graph gives what the usual parameters give."""
    graph, offers = _graph(), Offers({})
    _plan(graph, offers)
    usual = answers(_model(), "wide", FEEDS)
    (key, (candidates, _)), *more = offers.candidates.items()
    assert not more
    assert len(candidates) > 3
    for candidate in candidates:
        found = answers(_model(), "wide", FEEDS, tuning={key: list(candidate)})
        assert np.array_equal(found["y0"], usual["y0"]), candidate


def test_tuned__ignores_what_is_no_candidate() -> None:
    """A sidecar of another version may hold anything."""
    found = answers(_model(), "wide", FEEDS, tuning={"conv 1x24x16x1x3x40": [99, 7, 1, 1]})
    assert np.array_equal(found["y0"], answers(_model(), "wide", FEEDS)["y0"])


def test_stopwatch__times_the_kernels_of_a_node() -> None:
    """On this machine's device; how long they take is not said here."""
    runtime = open_runtime(device()[1])
    graph = _graph()
    plan = _plan(graph, {})
    node = next(step.node for step in plan.steps if isinstance(step, Launch))
    assert 0 < Stopwatch(runtime, times=2)(plan, node) < 60
