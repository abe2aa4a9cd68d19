# SPDX-License-Identifier: Apache-2.0
"""The ladder at work: fake sensors and fake hands; what is told to whom, and when it is told again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dpfedge.errors import ConfigError, WouldBlock
from dpfedge.limits import EVENTS_KEPT
from dpfedge.pipeline import degrading as module
from dpfedge.pipeline.degrading import Degrading, degrading
from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.pressure import Pressure

S = 10**9
MODELS: dict[str, dict[str, Any]] = {"talker": {}, "small": {}, "ears": {}}
STAGES = {
    "encoder": {"model": "ears", "partials": True},
    "llm": {"model": "talker", "sampling": {"max_tokens": 200, "top_p": 0.5}},
}
LADDER: list[dict[str, Any]] = [
    {
        "name": "warm", "when": {"temperature": "80C"}, "until": {"temperature": "70C"}, "hold": "0s",
        "set": {"llm": {"sampling": {"max_tokens": 96}}, "encoder": {"partials": False}},
    },
    {
        "name": "hot", "when": {"temperature": "90C"}, "until": {"temperature": "85C"}, "hold": "0s",
        "set": {"llm": {"model": "small", "first_words": 3}},
    },
    {"name": "saving", "when": {"power_mode": ["7W"]}, "optional": True, "set": {"encoder": {"partial_ms": 2000}}},
]  # fmt: skip


class Gauge:
    """Sensors that show what a test says."""

    names = frozenset({"temperature", "memory_free"})
    power_modes = ()

    def __init__(self) -> None:
        self.now, self.samples = Pressure(20.0, 0.5), 0

    def sample(self) -> Pressure:
        self.samples += 1
        return self.now


class Hands:
    """Writes down what is done; `full` links have no space."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.full: set[str] = set()

    def replace(self, name: str, *, model: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self.done.append(("replace", name, model, settings))

    def send_settings(self, stage: str, settings: Mapping[str, Any]) -> None:
        if stage in self.full:
            raise WouldBlock("no space", where=f"link source.{stage}")
        self.done.append(("send", stage, settings))

    def post(self, action: Callable[[], None]) -> None:
        action()

    def take(self) -> list[Any]:
        """What was done since."""
        done, self.done = self.done, []
        return done


class Made:
    """A ladder over two stages, with everything fake."""

    def __init__(self, section: Any = None) -> None:
        nodes = {node.name: node for node in Graph.of({"stages": STAGES}, "toy", MODELS).stages}
        self.gauge, self.hands = Gauge(), Hands()
        self.told: list[Mapping[str, Any]] = []
        self.stages: list[str] = []
        section = LADDER if section is None else section
        self.it = degrading(section or None, "toy", nodes, MODELS, lambda: self.gauge, self.hands, self.tell)

    def tell(self, stage: str, event: Mapping[str, Any]) -> None:
        self.stages.append(stage)
        self.told.append(event)

    def heat(self, celsius: float, second: int) -> list[Any]:
        """One look at this temperature; what it does."""
        self.gauge.now = Pressure(celsius, 0.5)
        self.it.tick(second * S)
        return self.hands.take()


@pytest.fixture
def made() -> Made:
    return Made()


def test_step__reaches_the_supervisor_and_the_running_stage(made: Made) -> None:
    """Settings inside are put together with the stage's own; a step back says what is left, down to nothing."""
    warm, hot = {"sampling": {"max_tokens": 96, "top_p": 0.5}}, {"first_words": 3}

    assert made.heat(20, 1) == []
    assert made.heat(95, 2) == [
        ("replace", "llm", "talker", None),
        ("replace", "llm", None, warm),
        ("replace", "encoder", None, {"partials": False}),
        ("send", "llm", warm),
        ("send", "encoder", {"partials": False}),
    ]
    assert made.heat(95, 3) == [
        ("replace", "llm", "small", None),
        ("replace", "llm", None, {**warm, **hot}),
        ("send", "llm", {**warm, **hot}),
    ]
    assert made.it.status()["step"] == "hot"
    assert made.heat(20, 4) == [
        ("replace", "llm", "talker", None), ("replace", "llm", None, warm), ("send", "llm", warm),
    ]  # fmt: skip
    assert made.heat(20, 5)[-2:] == [("send", "llm", {}), ("send", "encoder", {})]
    assert made.heat(20, 6) == []


def test_events__are_told_and_kept(made: Made) -> None:
    """Each with its reason and the figures."""
    made.heat(81, 1)
    made.heat(60, 2)

    assert [(event["what"], event["step"], event["level"]) for event in made.told] == [
        ("step entered", "warm", 1), ("step left", "warm", 0),
    ]  # fmt: skip
    assert made.told[0]["reason"] == "temperature 81.0 °C, at least 80.0 °C"
    assert made.told[0]["temperature_c"] == 81.0
    found = made.it.status()
    assert [event["reason"] for event in found["events"]] == [event["reason"] for event in made.told]
    assert "ago_ms" in found["events"][0]
    assert found["entered"] == {"warm": 1, "hot": 0}


def test_note__keeps_what_happened_to_a_stage(made: Made) -> None:
    """Beside the ladder's own events, the last ones only."""
    made.heat(85, 1)
    for number in range(100):
        made.it.note("llm", {"what": "restarted", "at_ns": number})

    events = made.it.status()["events"]
    assert (len(events), events[-1]["stage"], events[-1]["what"]) == (EVENTS_KEPT, "llm", "restarted")
    assert (made.stages[0], made.stages[-1]) == ("", "llm")


def test_send__into_a_full_link_is_tried_again_with_what_holds_then(made: Made) -> None:
    """Until then the supervisor knows; the other stage does not wait."""
    made.hands.full = {"llm"}
    assert ("send", "encoder", {"partials": False}) in made.heat(85, 1)
    assert made.heat(85, 2) == []
    made.heat(60, 3)
    made.hands.full = set()

    assert made.heat(60, 4) == [("send", "llm", {})]
    assert made.heat(60, 5) == []


def test_stop__sends_nothing_any_more(made: Made) -> None:
    """Not even what waited for space."""
    made.hands.full = {"llm", "encoder"}
    made.heat(85, 1)
    made.it.stop()
    made.hands.full = set()

    made.it._flush()
    assert made.hands.take() == []


def test_left_out__is_told_at_the_start(made: Made) -> None:
    """An optional step whose sensor is missing is not silently gone."""
    made.it.start()
    made.it.stop()

    reason = "toy: ladder[2]: step saving is left out: this machine tells no power mode"
    assert [(event["what"], event["reason"]) for event in made.told] == [("step left out", reason)]
    assert (made.it.status()["steps"], made.it.status()["left_out"]) == (["warm", "hot"], [reason])


def test_thread__looks_until_it_is_stopped(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, once in each interval."""
    monkeypatch.setattr(module, "_INTERVAL_S", 0.001)
    entered = threading.Event()
    monkeypatch.setattr(made.hands, "send_settings", lambda stage, settings: entered.set())
    made.gauge.now = Pressure(85.0)

    made.it.start()
    assert entered.wait(30)
    made.it.stop()

    assert made.told[-1]["step"] == "warm"
    samples = made.gauge.samples
    assert not made.it._thread.is_alive()
    assert made.gauge.samples == samples


def test_status__without_a_ladder_samples_once_a_second() -> None:
    """There is no thread then, and no need to read the sensors for each of many who ask."""
    made = Made(section=())
    assert isinstance(made.it, Degrading)
    made.it.start()

    assert made.it.status()["pressure"]["temperature_c"] == 20.0
    assert made.it.status() == made.it.status()
    assert made.gauge.samples == 1
    assert not made.it._thread.is_alive()
    made.it.stop()


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            {"when": {"headroom": "5C"}, "until": {"headroom": "9C"}},
            r"toy: ladder\[0\]: step 1: this machine tells no headroom",
        ),
        ({"when": {"power_mode": ["7W"]}}, "this machine tells no power mode"),
    ],
)
def test_start__on_a_machine_without_the_sensor(step: dict[str, Any], words: str) -> None:
    """Refused by name, before anything runs."""
    with pytest.raises(ConfigError, match=words):
        Made([{**step, "set": {"encoder": {"partials": False}}}])
