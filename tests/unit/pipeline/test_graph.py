# SPDX-License-Identifier: Apache-2.0
"""A package's pipeline section → stages, links, routes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import ConfigError
from dpfedge.pipeline.graph import ROUTES, Graph
from dpfedge.stage.api import Mode

ALL = {name: {"model": f"{name}-model", "depth": 1} for name in ("voice", "llm", "encoder", "decoder")}


def _graph(*names: str) -> Graph:
    return Graph.of({"stages": {name: ALL[name] for name in names or ALL}}, "x.dpfbin")


def test_graph__keeps_chain_order() -> None:
    """However the package orders them."""
    graph = _graph()

    assert graph.names == ("decoder", "encoder", "llm", "voice")
    assert graph.stages[2].model == "llm-model"
    assert graph.stages[2].config == {"depth": 1}


def test_links__of_the_whole_chain() -> None:
    """Source to each stage, each to the next, each to the sink."""
    links = {spec.name: spec for spec in _graph().links()}

    assert len(links) == 11
    assert links["decoder.encoder"].consumer == "encoder"
    assert {"source.voice", "llm.voice", "voice.sink"} <= set(links)
    assert all(spec.policy == "fail" for spec in links.values())


def test_links__of_a_part_leave_out_what_is_not_there() -> None:
    """No link leads to a stage the package lacks."""
    assert {spec.name for spec in _graph("llm").links()} == {"source.llm", "llm.sink"}
    assert "decoder.encoder" not in {spec.name for spec in _graph("decoder", "llm").links()}


@pytest.mark.parametrize("mode", list(ROUTES))
def test_route__of_each_mode(mode: Mode) -> None:
    """A whole pipeline can do everything."""
    assert _graph().route(mode) == ROUTES[mode]


def test_route__without_its_stage() -> None:
    """The refusal names the missing stage and what there is."""
    with pytest.raises(ConfigError, match=r"cannot speak; found no voice stage; allowed \('llm',\)"):
        _graph("llm").route(Mode.SPEAK)


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        ({}, "the package has no pipeline"),
        ({"stages": {}}, "the package has no pipeline"),
        ({"stages": []}, "the package has no pipeline"),
        ({"stages": {"vision": {"model": "m"}}}, "unknown stage; found vision"),
        ({"stages": {"llm": {}}}, "names no model"),
        ({"stages": {"llm": {"model": 3}}}, "names no model"),
    ],
)
def test_graph__refuses(pipeline: Any, words: str) -> None:
    """The error says where and what is allowed."""
    with pytest.raises(ConfigError, match=words) as caught:
        Graph.of(pipeline, "x.dpfbin")

    assert str(caught.value).startswith("x.dpfbin")


CODE = """
from dpfedge.stage import Dim, Each, Port, Ports
class A(Each):
    ports = Ports({}, {"numbers": Port("f32", (Dim("n", 1, 1000),))})
class B(Each):
    ports = Ports({"numbers": Port("f32", (Dim("n", 1, 1000),)), "more": Port("f32")}, {})
"""
DRAWN = {
    "stages": {"b": {"kind": "code:B"}, "a": {"kind": "code:A", "speed": 3}},
    "links": [{"from": "a.numbers", "to": "b.numbers"}],
}


def _drawn(folder: Path, **changes: Any) -> Graph:
    (folder / "code.py").write_text(CODE)
    return Graph.of({**DRAWN, **changes}, "p.yaml", folder=folder)


def test_drawn__stages_in_order_with_ports_and_budgets(tmp_path: Path) -> None:
    """What is drawn can be run as a whole."""
    budgets = {"request": "2s", "start": "5s", "memory": "1MiB", "stages": {"a": "150ms"}}
    graph = _drawn(tmp_path, budgets=budgets)

    assert graph.names == ("a", "b")
    assert graph.route(Mode.RUN) == ("a", "b")
    assert (graph.budgets.request_ns, graph.budgets.start_s, graph.budgets.memory) == (2_000_000_000, 5.0, 1 << 20)
    assert graph.node("a").budget_ns == 150_000_000
    assert graph.node("a").config == {"speed": 3}
    assert graph.drawn.given == {("b", "more"): "source.b.more"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budgets": {"memory": "16KiB"}}, r"more memory than the budget.*of them link.*allowed 16384 bytes"),
        ({"budgets": {"stages": {"c": "1s"}}}, "no such stage; found c; allowed b, a"),
        ({"budgets": {"request": "0s"}}, "pipeline.budgets.request: a budget of nothing; leave it out"),
        ({"budgets": {"memory": "0B"}}, "budgets.memory: a budget of nothing"),
        ({"stages": {**DRAWN["stages"], "b": {"kind": "code:B", "sync": {"lead": "nmbers"}}}}, "no such input.*nmbers"),
    ],
)
def test_drawn__refuses(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """Before a byte of memory is mapped."""
    with pytest.raises(ConfigError, match=words):
        _drawn(tmp_path, **changes)


def test_run__of_a_pipeline_that_is_not_drawn() -> None:
    """The voice chain has modes of its own."""
    with pytest.raises(ConfigError, match="no drawn graph"):
        _graph("llm").route(Mode.RUN)
