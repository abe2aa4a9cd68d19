# SPDX-License-Identifier: Apache-2.0
"""Drawn links: what they become, and every refusal before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.errors import ConfigError
from dpfedge.pipeline.links import draw, joins, loops
from dpfedge.stage.ports import Dim, Port, Ports

FRAME = Port("u8", (Dim("height", 1, 720), Dim("width", 1, 1280), 3), rate=30, layout="hwc", unit="rgb", slots=4)
TEXT = Port("bytes", (Dim("bytes", 0, 100),), unit="utf-8")
PORTS = {
    "camera": Ports(outputs={"frames": FRAME, "log": Port("bytes", (10,), optional=True)}),
    "detect": Ports({"frames": FRAME}, {"text": TEXT}),
    "view": Ports({"frames": FRAME}),
    "answer": Ports({"text": TEXT, "question": TEXT}, {"answer": TEXT}),
}
FRAMES = {"from": "camera.frames", "to": ["detect.frames", "view.frames"], "policy": "newest", "slots": 3}
TEXTS = {"from": "detect.text", "to": "answer.text"}


def _drawn(*links: dict[str, Any], whole: bool = True) -> Any:
    return draw(PORTS, joins(links, PORTS, "x.yaml"), whole=whole)


def test_links__as_they_are_drawn() -> None:
    """A link for several inputs, the policy of who draws it, one slot for the largest message."""
    drawn = _drawn(FRAMES, TEXTS)
    links = {link.name: link for link in drawn.links}

    frames = links["camera.detect"]
    assert (frames.consumers, frames.policy, frames.slots) == (("detect", "view"), "newest", 3)
    assert frames.slot_bytes == 720 * 1280 * 3
    assert drawn.wiring["camera"].outputs == {"frames": "camera.detect"}
    assert drawn.wiring["view"].inputs == {"camera.detect": "frames"}
    assert links["detect.answer"].policy == "fail"  # a stage waits for space outside of the link


def test_loose_ports__are_the_callers() -> None:
    """An input that nobody feeds, an output that nobody takes; an optional one is not there."""
    drawn = _drawn(FRAMES, TEXTS)

    assert drawn.given == {("answer", "question"): "source.answer.question"}
    assert drawn.taken == {"answer.answer.sink": ("answer", "answer")}
    assert not any("log" in link.name for link in drawn.links)
    assert _drawn(FRAMES, TEXTS, whole=False).given == {}


def test_two_links__between_the_same_stages_differ_in_name() -> None:
    """By the input they feed."""
    ports = {"a": Ports(outputs={"x": TEXT, "y": TEXT}), "b": Ports({"x": TEXT, "y": TEXT})}
    made = joins([{"from": "a.x", "to": "b.x"}, {"from": "a.y", "to": "b.y"}], ports, "f")

    assert draw(ports, made, whole=True).wiring["b"].inputs == {"a.b": "x", "a.b.y": "y"}


def test_policy__fail_is_the_producers() -> None:
    """Its request fails when no slot is free."""
    drawn = _drawn({**TEXTS, "policy": "fail"})

    assert drawn.wiring["detect"].failing == {"text"}
    assert drawn.wiring["answer"].failing == frozenset()


@pytest.mark.parametrize(
    ("links", "words"),
    [
        (
            [{"from": "camera.frames", "to": "answer.text"}],
            r"do not fit: dtype.*camera\.frames gives u8.*answer\.text takes",
        ),
        ([{"from": "camra.frames", "to": "view.frames"}], r"no such stage.*camra\.frames.*did you mean camera"),
        (
            [{"from": "camera.frame", "to": "view.frames"}],
            r"no such output.*camera\.frame;.*did you mean camera\.frames",
        ),
        ([{"from": "camera.frames", "to": "detect.text"}], r"no such input.*detect\.text; allowed detect\.frames"),
        ([{"from": "view.x", "to": "detect.frames"}], "view has none"),
        ([FRAMES, {"from": "camera.frames", "to": "view.frames"}], r"camera\.frames is linked twice.*to: \["),
        ([TEXTS, {"from": "answer.answer", "to": "answer.text"}], r"input answer\.text is linked twice"),
        ([{"from": "answer.answer", "to": ["answer.text", "answer.question"]}], "two inputs of one stage"),
    ],
)
def test_links__that_cannot_be(links: list[dict[str, Any]], words: str) -> None:
    """Both ports are named, and where the link stands."""
    with pytest.raises(ConfigError, match=words) as caught:
        _drawn(*links)

    assert f"x.yaml: pipeline.links[{len(links) - 1}]" in str(caught.value)


def test_order__each_stage_behind_what_it_takes_from() -> None:
    """However the stages are written."""
    made = joins([FRAMES, TEXTS], PORTS, "f")

    order = loops(("answer", "view", "detect", "camera"), made)
    assert order.index("camera") < order.index("detect") < order.index("answer")


def test_circle__needs_a_delay() -> None:
    """The refusal shows the way round; with a delay nobody waits for the end of what leads back."""
    ports = {name: Ports({"in": TEXT}, {"out": TEXT}) for name in ("a", "b", "c")}
    links: list[dict[str, Any]] = [
        {"from": "a.out", "to": "b.in"}, {"from": "b.out", "to": "c.in"}, {"from": "c.out", "to": "a.in"},
    ]  # fmt: skip
    with pytest.raises(
        ConfigError, match=r"runs in a circle; found (a → b → c → a|b → c → a → b|c → a → b → c).*delay: true"
    ):
        loops(tuple(ports), joins(links, ports, "f"))

    links[2]["delay"] = True
    made = joins(links, ports, "f")
    assert loops(tuple(ports), made) == ("a", "b", "c")
    assert draw(ports, made, whole=True).wiring["a"].delayed == {"in"}
