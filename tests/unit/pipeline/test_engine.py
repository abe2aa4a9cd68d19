# SPDX-License-Identifier: Apache-2.0
"""The engine's own part: places, messages, and every way a start or an end can go, over a toy zygote."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.errors import (
    Busy,
    ConfigError,
    DigestError,
    InputError,
    PackageError,
    StageDied,
    StageError,
    UsageError,
    WouldBlock,
)
from dpfedge.limits import REQUESTS_MAX
from dpfedge.pipeline.engine import Engine
from dpfedge.pipeline.observer import Observer
from dpfedge.pipeline.prepare import Prepared
from dpfedge.pipeline.wire import receive_message
from dpfedge.stage.api import Kind, Mode


class ToyZygote:
    """A zygote that answers nothing; `theirs` is its end of the socket."""

    made: list[ToyZygote]

    def __init__(self) -> None:
        self.control, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = SimpleNamespace(pid=os.getpid())
        self.stopped = 0
        ToyZygote.made.append(self)

    def stop(self, grace_s: float = 2.0) -> None:
        self.stopped += 1
        self.control.close()
        self.theirs.close()


CHOSEN = SimpleNamespace(record=lambda: {"target": "t"})


class Package:
    def __init__(self, path: Path, pipeline: dict[str, Any]) -> None:
        self.path, self.closed, self.manifest_sha256 = path, 0, bytes(32)
        self.manifest = SimpleNamespace(name="toy", pipeline=pipeline, models={})
        self.file = path.open("rb")

    def fileno(self) -> int:
        return self.file.fileno()

    def close(self) -> None:
        self.closed += 1
        self.file.close()


class Nobody:
    def stage_ready(self, name: str) -> None:
        return

    def stage_died(self, name: str) -> None:
        return

    def happened(self, *arguments: Any) -> None:
        return

    def post(self, action: Any) -> None:
        return

    def resting(self, keys: Any, stage: str) -> bool:
        return self.rests

    rests = False

    def receive(self, *arguments: Any) -> None:
        return


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """What the engine is told to open: an llm alone."""
    path = tmp_path / "x.dpfbin"
    path.write_bytes(b"x")
    one = Package(path, {"stages": {"llm": {"model": "m"}, "decoder": {"model": "m"}}})
    ToyZygote.made = []
    return one


def _start(package: Package, checking: Any = None, observe: Any = None) -> Engine:
    board = SimpleNamespace(id="host", placement={}, thermal={})
    bound: Any = SimpleNamespace(
        package=package, board=board, models=(), places={}, chosen=CHOSEN, sidecar=None, stale=("why",),
        close=package.close,
    )  # fmt: skip
    zygote: Any = ToyZygote()
    located: Any = None
    return Engine.start(Prepared(zygote, bound, located, checking), Nobody(), observe)


@pytest.fixture
def engine(package: Package) -> Iterator[Engine]:
    """An engine whose stages never come; `up` makes them look served."""
    one = _start(package)
    yield one
    one.stop()


class Notes(Observer):
    """Keeps what it is told, and every message."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.tap = self

    def closed(self, key: int) -> None:
        self.told.append(("closed", key))

    def cancelled(self, key: int, before: int) -> None:
        self.told.append(("cancelled", key, before))

    def sent(self, link: str, descriptor: Any, payload: memoryview) -> None:
        self.told.append((link, descriptor.request, bytes(payload)))

    def received(self, link: str, lease: Any) -> None:
        return


def _up(engine: Engine) -> None:
    for state in engine.supervisor.stages.values():
        state.served, state.state = True, "ready"


def test_observer__is_told_of_requests_and_messages(package: Package) -> None:
    """It is made with the package; a runtime nobody observes has none, and its ports are their own."""
    notes = Notes()
    engine = _start(package, observe=lambda plan: notes if plan.bound.package is package else Observer())
    key = engine.open_request(Nobody())
    engine.send_text("llm", key, Kind.TEXT, "hi", 3)
    engine.cancel_turns(key, 4)
    engine.close_request(key)
    engine.stop()

    assert notes.told == [("source.llm", key, b"hi"), ("cancelled", key, 4), ("closed", key)]


def test_start__tells_the_zygote_which_file_it_must_be(engine: Engine, package: Package) -> None:
    """Descriptors of arena and package, the digest, then one command for each stage."""
    theirs = ToyZygote.made[0].theirs
    setup, fds = receive_message(theirs)
    commands = [receive_message(theirs) for _ in range(2)]

    where = {"path": str(package.path), "manifest": "00" * 32, "folder": None}
    assert setup == {"chosen": {"target": "t"}, **where}
    assert os.fstat(fds[1]).st_ino == package.path.stat().st_ino
    assert [command["unit"] for command, _ in commands] == ["decoder", "llm"]
    for fd in (*fds, *(fd for _, row in commands for fd in row)):
        os.close(fd)


def test_start__of_a_package_without_pipeline(package: Package) -> None:
    """A model alone is nothing to run."""
    package.manifest.pipeline = {}
    with pytest.raises(ConfigError, match="the package has no pipeline"):
        _start(package)
    assert (ToyZygote.made[0].stopped, package.closed) == (1, 1)


def test_start__when_the_file_is_gone_again(package: Package) -> None:
    """The stages get the file that was opened, not its name."""
    package.path.unlink()
    _start(package).stop()

    assert (ToyZygote.made[0].stopped, package.closed) == (1, 1)


def test_stop__gives_everything_back_once(package: Package) -> None:
    """Descriptors, package and zygote; calls after it say so."""
    before = len(os.listdir("/proc/self/fd"))
    engine = _start(package)
    _up(engine)
    engine.stop()
    engine.stop()

    assert (ToyZygote.made[0].stopped, package.closed) == (1, 1)
    assert len(os.listdir("/proc/self/fd")) == before - 1  # the package's own
    assert engine.link_stats() == {}
    assert not engine.live(1)
    with pytest.raises(UsageError, match="the runtime is closed"):
        engine.check_up(Mode.CHAT)


def test_request__closed_after_stop(package: Package) -> None:
    """Its iterator may be left late."""
    engine = _start(package)
    key = engine.open_request(Nobody())
    engine.stop()
    engine.close_request(key)
    engine.cancel_turns(key, 5)


def test_stop__in_a_forked_child_leaves_the_parent_alone(engine: Engine) -> None:
    """So does a request that is closed there."""
    _up(engine)
    key = engine.open_request(Nobody())
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            engine.close_request(key)
            engine.stop()
            engine.check_up(Mode.CHAT)
        except UsageError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert engine.live(key)
    assert ToyZygote.made[0].stopped == 0


def test_check_up__of_every_state(engine: Engine) -> None:
    """Never served: not yet; restarting: yes, messages wait; failed: no."""
    with pytest.raises(StageDied, match="stage llm: the stage is starting"):
        engine.check_up(Mode.CHAT)
    _up(engine)
    assert engine.check_up(Mode.CHAT) == ("llm",)
    engine.supervisor.stages["llm"].state = "restarting"
    assert engine.check_up(Mode.CHAT) == ("llm",)
    engine.supervisor.stages["llm"].state = "failed"
    with pytest.raises(StageError, match="it died too often"):
        engine.check_up(Mode.CHAT)
    with pytest.raises(ConfigError, match="cannot speak"):
        engine.check_up(Mode.SPEAK)


class Checking:
    """The check of a package's weights, as it stands."""

    def __init__(self, error: PackageError | None = None) -> None:
        self.error, self.passed, self.stopped = error, False, 0

    def wait(self) -> None:
        if self.error:
            raise self.error
        self.passed = True

    def stop(self) -> None:
        self.stopped += 1


def test_check__nothing_is_answered_before_its_verdict(package: Package) -> None:
    """Every stage is warm, and still there is no route; the end stops the check."""
    checking = Checking()
    engine = _start(package, checking)
    _up(engine)
    with pytest.raises(StageDied, match="the package is being checked"):
        engine.check_up(Mode.CHAT)
    assert not engine.ready()

    engine.wait_ready()
    assert engine.ready()
    assert engine.check_up(Mode.CHAT) == ("llm",)
    engine.stop()
    assert checking.stopped == 1


def test_check__its_refusal_is_the_start_s(package: Package) -> None:
    """Damaged weights are named, also where a stage could not load them."""
    engine = _start(package, Checking(DigestError("section is damaged", where="p")))
    _up(engine)
    with pytest.raises(DigestError, match="section is damaged"):
        engine.wait_ready()
    engine.supervisor.stages["llm"].state = "failed"
    with pytest.raises(DigestError, match="section is damaged"):
        engine.wait_ready()
    engine.stop()


def test_places__are_bounded_and_come_back(engine: Engine) -> None:
    """Busy, then free again; the old key stays dead."""
    keys = [engine.open_request(Nobody()) for _ in range(REQUESTS_MAX)]
    with pytest.raises(Busy):
        engine.open_request(Nobody())
    engine.close_request(keys[3])
    new = engine.open_request(Nobody())

    assert new != keys[3]
    assert not engine.live(keys[3])
    assert engine.live(new)


def test_close_request__is_seen_by_a_stage_that_wakes_up(engine: Engine) -> None:
    """The bell rings after the place is free: whoever looks then must not find it live."""
    key, bell = engine.open_request(Nobody()), engine.arena.bell("llm")
    rings: list[bool] = []
    requests = engine.arena.requests

    class Table:
        def close(self, key: int) -> None:
            requests.close(key)
            rings.append(False)

        def cancel(self, key: int) -> None:
            rings.append(requests.live(key))
            requests.cancel(key)

    before = bell.value()
    engine.arena.requests = Table()  # type: ignore[assignment]
    engine.close_request(key)
    engine.arena.requests = requests

    assert rings == [False, False]
    assert bell.value() != before


def test_messages__reach_their_link(engine: Engine) -> None:
    """START, text, map and audio, each with its kind."""
    key = engine.open_request(Nobody())
    engine.send_start("llm", key, {"mode": 2})
    engine.send_text("llm", key, Kind.TEXT, "hä", 3)
    engine.send_map("llm", key, Kind.HEARD, {"text": ""}, 4)
    engine.send_audio(key, memoryview(b"1234"), 99, last=True)
    engine.send_audio(key, memoryview(b""), 99)
    llm, decoder = engine.arena.consumer("source.llm", 5), engine.arena.consumer("source.decoder", 5)

    found = [llm.receive() for _ in range(3)]
    assert [(lease.kind, lease.turn, lease.request) for lease in found if lease] == [
        (Kind.START, 0, key), (Kind.TEXT, 3, key), (Kind.HEARD, 4, key),
    ]  # fmt: skip
    audio, empty = decoder.receive(), decoder.receive()
    assert audio is not None
    assert empty is not None
    assert (bytes(audio.view), audio.captured_ns, audio.flags, empty.nbytes) == (b"1234", 99, 1, 0)


def test_messages__too_many_and_too_long(engine: Engine) -> None:
    """A full link is the sender's to wait for; a long message is the caller's mistake."""
    piece = memoryview(bytes(engine.audio_piece))
    for _ in range(engine.arena.links["source.decoder"].slots):
        engine.send_audio(1, piece, 0)
    with pytest.raises(WouldBlock):
        engine.send_audio(1, piece, 0)

    long = {"messages": "x" * engine.arena.links["source.llm"].slot_bytes}
    assert not engine.fits("llm", long)
    assert engine.fits("llm", {"messages": ""})
    with pytest.raises(InputError, match="too long"):
        engine.send_start("llm", 1, long)


def test_idle__between_the_turns_of_sessions(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is open, or whoever has them says that they lose nothing."""
    assert engine._idle("llm")
    key = engine.open_request(Nobody())
    assert not engine._idle("llm")
    monkeypatch.setattr(engine, "_resting", lambda keys, stage: (list(keys), stage) == ([key], "llm"))
    assert engine._idle("llm")
    engine.close_request(key)


def test_status__tells_of_every_part(engine: Engine) -> None:
    """Stages, this process, the zygote, the links."""
    status = engine.status()

    assert status["stages"]["llm"]["state"] == "starting"
    assert status["stages"]["llm"]["placed"] is None
    assert status["seal"] == {"path": None, "stale": ["why"]}
    assert status["server"]["pid"] == os.getpid()
    assert status["links"]["source.llm"]["sent"] == 0
    assert (status["degrade"]["level"], status["degrade"]["steps"]) == (0, [])
    assert "pss_bytes" in status["server"]
    assert "pss_bytes" not in engine.status(memory=False)["server"]
    assert engine.facts() == {"decoder": {}, "llm": {}}
