# SPDX-License-Identifier: Apache-2.0
"""Models, assets and graphs of a bound package."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dpfedge.backend.api import Budget
from dpfedge.backend.registry import Registry
from dpfedge.binding import Chosen
from dpfedge.binding.bind import bind
from dpfedge.errors import BindError
from dpfedge.hardware.board import Board
from dpfedge.package import Package

Build = Callable[..., Package]


def test_model__gives_numbers_assets_and_graphs(build: Build, host: Board, parts: Any) -> None:
    """A model keeps its family, configuration and assets; the bytes are the package's own, read-only."""
    bound = bind(build(parts.target("t", "cpu", ["board", "host"])), host, parts.found(parts.CPU))

    model = bound.model("llm")
    assert bound.models == ("llm", "vad")
    assert (model.name, model.family, dict(model.config)) == ("llm", "llama", {"n": 1})
    assert (model.assets, model.graphs) == (("tokenizer",), ("step",))
    assert bytes(model.asset("tokenizer")) == b"tokens"
    assert model.asset("tokenizer").readonly


def test_load__hands_the_mapped_graph_to_the_backend(build: Build, host: Board, parts: Any) -> None:
    """The backend gets the graph, its weights by section name, the chosen device and the budget."""
    recorder = parts.Recorder("cpu")
    package = build(parts.target("t", "cpu", ["board", "host"]))
    bound = bind(package, host, parts.found(parts.CPU, cpu=recorder))

    budget = Budget(threads=2)
    assert bound.model("llm").load("step", budget) == "executable"
    [(graph, device, given)] = recorder.loaded
    assert (graph.name, bytes(graph.code), graph.options) == ("llm/step", b"graph bytes", {"a": 1})
    assert bytes(graph.weights["weights"][:9]) == bytes(range(9))
    assert (device, given) == (parts.CPU, budget)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda bound: bound.model("asr"), "package small: there is no such model; found asr; allowed llm, vad"),
        (lambda bound: bound.model("llm").asset("x"), "model llm: there is no such asset; found x; allowed tokenizer"),
        (lambda bound: bound.model("llm").graph("x"), "model llm: there is no such graph; found x; allowed step"),
        (
            lambda bound: bound.model("llm").bucket("step", n=1),
            "model llm: the graph has no buckets; found step; allowed none; "
            "load it by its name, or give its recipe buckets",
        ),
    ],
)
def test_bound__unknown_names(
    build: Build, host: Board, parts: Any, ask: Callable[[Any], object], message: str
) -> None:
    """A name that is not there is answered with those that are."""
    bound = bind(build(parts.target("t", "cpu", ["board", "host"])), host, parts.found(parts.CPU))

    with pytest.raises(BindError) as caught:
        ask(bound)
    assert str(caught.value) == message


def test_chosen__again_in_another_process(build: Build, host: Board, parts: Any) -> None:
    """What was chosen survives JSON: the same target, backend, devices and models."""
    recorder = parts.Recorder("cpu")
    package = build(parts.target("t", "cpu", ["board", "host"]))
    bound = bind(package, host, parts.found(parts.CPU, cpu=recorder))
    record = json.loads(json.dumps(bound.chosen.record()))
    registry = Registry()
    registry.add(recorder)

    again = Chosen.again(bound.package, record, registry)

    assert again == bound.chosen
    assert again.model(bound.models[0]) == bound.model(bound.models[0])
