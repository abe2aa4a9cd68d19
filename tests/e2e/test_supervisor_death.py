# SPDX-License-Identifier: Apache-2.0
"""The supervising process, the stages' parent and stages of a real pipeline, killed at random moments under load.

Whoever is left ends or goes on, no number is wrong, nothing is kept.

DPFEDGE_SUPERVISOR_KILLS and DPFEDGE_STAGE_KILLS say how often (10 and 200 without them).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_tiny import Holder, arena_of, lives, users_of, write_tiny

SUPERVISOR_KILLS = int(os.environ.get("DPFEDGE_SUPERVISOR_KILLS", "10"))
STAGE_KILLS = int(os.environ.get("DPFEDGE_STAGE_KILLS", "200"))

Until = Callable[..., None]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A pipeline file."""
    return write_tiny(tmp_path)


@pytest.fixture
def holder(tiny: Path) -> Iterator[Holder]:
    """The tiny pipeline under load; it ends in order, and never found a wrong number."""
    one = Holder(tiny, load=3)
    one.status()
    yield one
    assert one.close() == 0


def free(folder: Path) -> bool:
    """Whether every stage's device can be had."""
    for path in folder.glob("*.device"):
        with path.open("w") as device:
            try:
                fcntl.flock(device, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
    return True


def test_supervisor__killed_at_random(tiny: Path, until: Until, record_property: Callable[..., None]) -> None:
    """Under load or while it starts, alone, with the stages' parent, or with a stage just killed: all of them end."""
    chance, slowest = random.Random(3), 0.0
    for count in range(SUPERVISOR_KILLS):
        one = Holder(tiny, load=3)
        pids = one.pids()
        arena = arena_of(pids[0])
        assert len(users_of(arena)) == 3  # this process and two stages; the parent of both only passes it on
        time.sleep(chance.random() * 0.2)
        for victim in [(), (pids[1],), (pids[2],), (pids[2], pids[3])][count % 4]:
            os.kill(victim, signal.SIGKILL)
        os.kill(pids[0], signal.SIGKILL)
        killed = time.monotonic()
        assert one.process.wait(30) == -signal.SIGKILL

        # stages that were just being started again are found by their memory
        until(lambda pids=pids, arena=arena: not any(lives(pid) for pid in pids) and not users_of(arena))
        slowest = max(slowest, time.monotonic() - killed)
        until(lambda: free(tiny.parent))
        for pipe in (one.process.stdin, one.process.stdout):
            pipe.close()  # type: ignore[union-attr]
    record_property("kills", SUPERVISOR_KILLS)
    record_property("slowest_end_s", round(slowest, 3))
    print(f"supervisor: {SUPERVISOR_KILLS} kills, all processes gone after {slowest * 1e3:.0f} ms at most")


def test_supervisor__killed_while_it_starts(tiny: Path, until: Until) -> None:
    """At any moment of the start: no process is left, whether it had a stage or not."""
    chance = random.Random(5)
    for _ in range(max(4, SUPERVISOR_KILLS // 2)):
        one = Holder(tiny, load=1, DPF_TEST_MARK=f"{tiny}")
        time.sleep(chance.random() * 0.9)
        one.process.kill()
        one.process.wait(30)
        for pipe in (one.process.stdin, one.process.stdout):
            pipe.close()  # type: ignore[union-attr]
        until(lambda: not marked(f"DPF_TEST_MARK={tiny}") and free(tiny.parent))


def marked(mark: str) -> list[int]:
    """Processes that were started with this in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes() and lives(int(path.parent.name)):
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def test_zygote__killed_under_load(holder: Holder, until: Until) -> None:
    """Stages end with it and come back with the next one; requests go on."""
    for _ in range(max(3, SUPERVISOR_KILLS // 4)):
        before = holder.status()
        old = [before["zygote"], *(pid for pid, _, _ in before["stages"].values())]
        os.kill(before["zygote"], signal.SIGKILL)
        until(lambda old=old: not any(lives(pid) for pid in old))
        until(lambda before=before: holder.status()["zygote"] != before["zygote"])  # it may hear of the death later
        until(lambda: all(state == "ready" for _, state, _ in holder.status()["stages"].values()))
        after = holder.status()
        until(lambda after=after: holder.status()["whole"] > after["whole"] + 3)


def test_stages__killed_under_load(holder: Holder, until: Until, tiny: Path) -> None:
    """First, second or both; every request is whole or told, and nothing of the dead is kept."""
    chance = random.Random(11)
    until(lambda: holder.status()["whole"] > 3)
    files, before = open_files(holder), holder.status()["whole"]
    for count in range(STAGE_KILLS):
        stages = holder.status()["stages"]
        victims = chance.choice([["first"], ["second"], ["first", "second"]])
        for name in victims:
            if stages[name][0]:
                with contextlib.suppress(ProcessLookupError):  # it has not been missed yet since the last time
                    os.kill(stages[name][0], signal.SIGKILL)
        time.sleep(chance.random() * 0.02)
        if count % 10 == 0:
            until(lambda: all(state == "ready" for _, state, _ in holder.status()["stages"].values()))
            whole = holder.status()["whole"]
            until(lambda whole=whole: holder.status()["whole"] > whole + 2)
    until(lambda: all(state == "ready" for _, state, _ in holder.status()["stages"].values()))

    status = holder.status()
    assert sum(restarts for _, _, restarts in status["stages"].values()) >= STAGE_KILLS // 2
    assert status["whole"] > before
    until(lambda: open_files(holder) == files)
    print(f"stages: {STAGE_KILLS} kills, requests: {status['whole']} whole, {status['failed']} told")


def open_files(holder: Holder) -> tuple[int, ...]:
    """Open descriptors of the supervising process and of the stages' parent."""
    return tuple(len(os.listdir(f"/proc/{pid}/fd")) for pid in holder.pids()[:2])
