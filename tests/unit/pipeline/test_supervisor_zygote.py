# SPDX-License-Identifier: Apache-2.0
"""Zygotes that die, cannot be started, or say what is wrong, and the one that follows them."""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

import pytest
from made_supervisor import Make, ToyZygote

from dpfedge.pipeline import supervisor_zygote as module
from dpfedge.pipeline.supervisor_loop import Loop
from dpfedge.pipeline.supervisor_zygote import ZygoteKeeper

pytestmark = pytest.mark.usefixtures("nothing_left")


class Teller:
    """Notes what it is told; wants another zygote as often as `lives` says."""

    def __init__(self, lives: int = 0) -> None:
        self.told: list[Any] = []
        self._lives = lives

    def forked(self, unit: str, pid: int, pidfd: int, reason: str) -> None:
        self.told.append((unit, pid > 0, reason))
        os.close(pidfd)

    def zygote_gone(self) -> bool:
        self.told.append("gone")
        self._lives -= 1
        return self._lives >= 0

    def zygote_new(self) -> None:
        self.told.append("new")


def run(loop: Loop, teller: Teller, count: int) -> list[Any]:
    while len(teller.told) < count:
        loop.round(10)
    return teller.told


def test_keeper__passes_commands_and_answers_on() -> None:
    """One process for each command."""
    loop, teller = Loop(), Teller()
    zygote: Any = ToyZygote()
    keeper = ZygoteKeeper(zygote, loop, teller)
    keeper.introduce({"pipeline": {}}, [])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    keeper.ask({"unit": "a", "stages": []}, theirs.fileno())
    assert run(loop, teller, 1) == [("a", True, "")]
    assert keeper.alive

    keeper.close()
    keeper.close()
    assert not keeper.alive
    ours.close()
    theirs.close()
    loop.close()


def test_keeper__killed_zygote_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as that is wanted; the new one is told the same."""
    monkeypatch.setattr(module, "Zygote", ToyZygote)
    loop, teller = Loop(), Teller(lives=1)
    zygote: Any = ToyZygote()
    keeper = ZygoteKeeper(zygote, loop, teller)
    first = keeper.pid
    keeper.introduce({"pipeline": {}}, [])
    keeper.kill()
    assert run(loop, teller, 2) == ["gone", "new"]
    assert keeper.pid != first

    keeper.kill()
    assert run(loop, teller, 3)[2] == "gone"
    keeper.kill()  # there is none
    loop.round(0)
    assert not keeper.alive
    loop.close()


def test_zygote__that_cannot_be_started_is_tried_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory now is no memory for ever."""
    tries: list[int] = []

    def sometimes() -> ToyZygote:
        tries.append(1)
        if len(tries) == 1:
            raise OSError(11, "Resource temporarily unavailable")
        return ToyZygote()

    monkeypatch.setattr(module, "Zygote", sometimes)
    pipeline = make()
    pipeline.one.wait_ready()
    os.kill(pipeline.one.zygote_pid, signal.SIGKILL)
    pipeline.watch.wait("ready", "llm", 2)

    assert len(tries) == 2
