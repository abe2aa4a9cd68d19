# SPDX-License-Identifier: Apache-2.0
"""A small arena with every link of the demo's pipeline, and both of its ends in this process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cbor2
import pytest

from dpfedge.link import Arena, Consumer, Lease, LinkSpec, Producer
from dpfedge.pipeline import supervisor_zygote, unit
from dpfedge.pipeline.messages import LinkMessage, send_map
from dpfedge.pipeline.stage_record import Wiring
from dpfedge.stage.api import Kind, Mode, RequestIO, Steps, Wait

sys.path.insert(0, str(Path(__file__).parent / "made"))

SOURCE_OWNER, STAGE_OWNER = 1000, 1
PAIRS = (
    *(("source", name) for name in ("decoder", "encoder", "llm", "voice")),
    ("decoder", "encoder"),
    ("encoder", "llm"),
    ("llm", "voice"),
    *((name, "sink") for name in ("decoder", "encoder", "llm", "voice")),
)


def wiring(stage: str) -> Wiring:
    """A stage's links of PAIRS; its ports have the names of the stages at their other ends."""
    return Wiring(
        {f"{a}.{b}": a for a, b in PAIRS if b == stage and a != "source"},
        {b: f"{a}.{b}" for a, b in PAIRS if a == stage and b != "sink"},
    )


class ToyStage:
    """A stage whose requests are what `life` says."""

    def __init__(self, name: str, life: Callable[[RequestIO], Steps]) -> None:
        self.name, self._life = name, life

    def warm(self) -> None:
        return

    def facts(self) -> Mapping[str, Any]:
        return {}

    def request(self, io: RequestIO) -> Steps:
        return self._life(io)


class SettlingStage(ToyStage):
    """A stage that goes on preparing once it is ready; `steps` counts how far it came."""

    steps = 0

    def settle(self) -> Steps:
        for _ in range(3):
            self.steps += 1
            yield Wait.STEP


class Rig:
    """An arena, its source and its sinks; `send` and `got` speak for whoever the stage under test speaks with."""

    wiring = staticmethod(wiring)

    def __init__(self, slots: int = 4) -> None:
        specs = [LinkSpec(f"{a}.{b}", a, b, slots, 8192) for a, b in PAIRS]
        self.arena = Arena.create(specs, requests=4, name="test")
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, Consumer] = {}

    def producer(self, link: str) -> Producer:
        if link not in self._producers:
            self._producers[link] = self.arena.producer(link, SOURCE_OWNER)
        return self._producers[link]

    def consumer(self, link: str) -> Consumer:
        if link not in self._consumers:
            self._consumers[link] = self.arena.consumer(link, SOURCE_OWNER)
        return self._consumers[link]

    def start(self, stage: str, key: int, mode: Mode = Mode.CHAT, **options: Any) -> None:
        send_map(
            self.producer(f"source.{stage}"), key, Kind.START, {"mode": int(mode), "route": [stage, "voice"], **options}
        )

    def send(self, link: str, key: int, kind: Kind, data: Any = None, *, turn: int = 0, last: bool = False) -> None:
        send_map(self.producer(link), key, kind, data or {}, turn=turn, last=last)

    def lease(self, link: str) -> Lease | None:
        return self.consumer(link).receive()

    def got(self, link: str) -> list[tuple[Kind, int, Any]]:
        """(kind, turn, payload) of every message that waits; they are released."""
        found = []
        while (lease := self.lease(link)) is not None:
            message = LinkMessage(lease)
            data = bytes(lease.view)
            payload = data.decode() if message.kind in (Kind.TEXT, Kind.DRAFT) else cbor2.loads(data) if data else None
            found.append((message.kind, message.turn, payload))
            message.release()
        return found

    def held(self) -> dict[str, int]:
        """Links with slots that somebody holds → how many."""
        return {name: stats.loaned + stats.in_flight for name, stats in self.arena.stats().items() if
                stats.loaned + stats.in_flight}  # fmt: skip


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A fresh arena of links with four slots each."""
    one = Rig()
    yield one
    one.arena.close()


@pytest.fixture
def settling() -> type[SettlingStage]:
    """A stage with something left to prepare."""
    return SettlingStage


@pytest.fixture
def toy() -> type[ToyStage]:
    """A stage made of one generator function."""
    return ToyStage


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No file, thread or child process is left behind."""
    before = (os.listdir("/proc/self/fd"), set(threading.enumerate()), _children())
    yield
    assert len(os.listdir("/proc/self/fd")) == len(before[0])
    assert set(threading.enumerate()) <= before[1]
    assert _children() <= before[2]


def _children() -> set[str]:
    """This process' children, zombies too; a server of another test may be one of them."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture
def make(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Make pipelines of toy stages that are stopped at the end; restarts are at once."""
    from made_supervisor import Pipeline, ToyZygote

    monkeypatch.setattr(supervisor_zygote, "Zygote", ToyZygote)
    monkeypatch.setattr(supervisor_zygote, "BACK_OFF_S", (0.0,))
    monkeypatch.setattr(unit, "BACK_OFF_S", (0.0,))
    made: list[Pipeline] = []

    def _make(behaviour: dict[str, Any] | None = None, **settings: Any) -> Pipeline:
        made.append(Pipeline(rig.arena, behaviour, **settings))
        return made[-1]

    yield _make
    for one in made:
        one.one.stop(0.2)


@pytest.fixture
def start(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Fork processes of toy stages, which are killed at the end; see `made_stage.py`."""
    from made_stage import starting

    with starting(rig, monkeypatch) as begin:
        yield begin


@pytest.fixture
def threads(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Make a running drawn graph; it is stopped at the end. See `made_flow.py`."""
    from made_flow import Threads

    made: list[Threads] = []

    def make(**changes: Any) -> Threads:
        made.append(Threads(tmp_path, **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()
