# SPDX-License-Identifier: Apache-2.0
"""The firmware before a real server: spoken turns, buttons, the stop phrase with the llm, or all, stopped or dead."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_firmware import FLUSH, HZ, STOP, Converter, Firmware, at_16k, built

from dpfedge.routing.instances import Instance
from dpfedge.routing.publication import Published, Publisher
from dpfedge.routing.router import Router

QUESTION = "What can you do for me?"  # its answer is known, and takes five seconds to say
PHRASE = "Stop talking."
FADE = 40
LONG_S = 120


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the firmware's host ports are."""
    return built(tmp_path_factory.mktemp("firmware"))


@pytest.fixture(params=["dpf-firmware", "dpf-firmware-rpmsg"])
def program(request: pytest.FixtureRequest, programs: Path) -> Path:
    """A core on the rings, and one that speaks rpmsg."""
    return programs / str(request.param)


Start = Callable[..., Firmware]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(program, server, …)`: a firmware with a session there."""
    started: list[Firmware] = []

    def make(program: Path, server: Any, *words: str, socket: str = "", others: Sequence[str] = ()) -> Firmware:
        converter = Converter(tmp_path / f"dsp{len(started)}.bin", LONG_S)
        sockets = [socket or str(server.socket.with_suffix(".native")), *others]
        named = [word for one in sockets for word in ("--socket", one)]
        started.append(Firmware(program, converter, *named, *words))
        return started[-1]

    yield make
    for one in started:
        one.kill()


def ask(firmware: Firmware, spoken: Callable[[str], bytes], played_s: float = 0.5) -> None:
    """Say the question; return when a part of its answer was played."""
    firmware.converter.say(at_16k(spoken(QUESTION)))
    firmware.until(lambda: firmware.converter.counters["played"] > played_s * HZ)


def test_turn__spoken_question_and_its_spoken_answer(
    program: Path, server: Any, start: Start, spoken: Callable[[str], bytes]
) -> None:
    """Nothing but memory: the whole answer is played, and none of what was said was lost."""
    firmware = start(program, server)
    ask(firmware, spoken)
    firmware.until(lambda: firmware.converter.counters["answers"])
    counters = firmware.converter.counters

    assert counters["stops"] == counters["own"] == counters["moves"] == 0
    assert counters["unsent"] < HZ  # a core that speaks rpmsg has no place before its bridge is there
    assert counters["played"] > 3 * HZ
    assert np.count_nonzero(firmware.converter.played) > 2 * HZ
    assert "answers 1" in firmware.end()


def test_button__ends_an_utterance_and_an_answer(
    program: Path, server: Any, start: Start, spoken: Callable[[str], bytes]
) -> None:
    """Push to talk: nothing is heard before the flush; and the other button silences."""
    firmware = start(program, server, "--by-hand")
    end = firmware.converter.say(at_16k(spoken(QUESTION)))
    firmware.until(lambda: firmware.converter.now > end + HZ)
    assert firmware.converter.counters["played"] == 0

    firmware.converter.press(FLUSH)
    firmware.until(lambda: firmware.converter.counters["events"] >= 2)  # it was committed, and understood
    firmware.converter.press(STOP)
    firmware.until(lambda: firmware.converter.counters["stops"] == 1)
    firmware.end()


def test_route__the_published_table_says_which_session_hears(
    program: Path, server: Any, start: Start, spoken: Callable[[str], bytes], tmp_path: Path
) -> None:
    """For each user the instance that Python's lookup names; when that one goes, the other one hears and answers."""
    native = server.socket.with_suffix(".native")
    table = tmp_path / "table"
    with Publisher(table) as publisher:
        router = Router(publisher)
        router.assign([Instance("one"), Instance("two")])
        users = {router.route("llm", f"user {number}", 7).instance: f"user {number}" for number in range(64)}
        for at, name in enumerate(("one", "two")):
            words = ("--route", str(table), "--model", "llm", "--user", users[name], "--session-ms", "7")
            firmware = start(program, server, *words, socket=f"{native}=one", others=[f"{native}=two"])
            firmware.until(lambda firmware=firmware, at=at: firmware.converter.chosen == at)
            firmware.end()

        firmware = start(program, server, *words, socket=f"{native}=one", others=[f"{native}=two"])
        router.weigh("two", 0)
        firmware.until(lambda: firmware.converter.chosen == 0)
        assert firmware.converter.counters["moves"] == 2
        ask(firmware, spoken)
        router.weigh("one", 0)
        firmware.until(lambda: firmware.converter.chosen == 0xFFFFFFFF)
        router.publish()
        firmware.end()


def test_route__a_servers_own_table_names_it(program: Path, server: Any, start: Start) -> None:
    """The table that `dpfedge serve` publishes of its devices is one that firmware reads."""
    [table] = server.socket.parent.glob("route/serve-*.table")
    name = next(iter(Published.open(table).entries().values())).text
    words = ("--route", str(table), "--model", "llm", "--user", "u", "--session-ms", "7")
    firmware = start(program, server, *words, socket=f"{server.socket.with_suffix('.native')}={name}")
    firmware.until(lambda: firmware.converter.chosen == 0 and firmware.converter.counters["sent"])
    firmware.end()


def stop_everything(server: Any, how: str) -> list[int]:
    """Stop or kill what `how` says; the processes that are stopped."""
    name, _, number = how.partition(" ")
    rows = server.status()["stages"]
    pids = [rows["llm"]["pid"]] if name == "llm" else server.pids()
    for pid in pids:
        os.kill(pid, signal.Signals[number])
    if how == "everybody SIGKILL":
        server.wait()
    return pids if number == "SIGSTOP" else []


@pytest.mark.parametrize(
    ("program", "how"),
    [
        *(("dpf-firmware", how) for how in ("llm SIGSTOP", "llm SIGKILL", "everybody SIGSTOP", "everybody SIGKILL")),
        *(("dpf-firmware-rpmsg", how) for how in ("llm SIGSTOP", "everybody SIGKILL")),
    ],
    indirect=["program"],
)
def test_stop_phrase__silences_with_the_llm_stopped_or_dead(
    program: Path, how: str, own_server: Any, start: Start, spoken: Callable[[str], bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The lane needs nobody: not the llm, not the server that holds the session. How long it took is printed."""
    phrase = at_16k(spoken(PHRASE))
    firmware = start(program, own_server)
    converter = firmware.converter
    ask(firmware, spoken, played_s=1.5)
    stopped = stop_everything(own_server, how)
    try:
        said = converter.say(phrase, ahead_s=0.1)
        firmware.until(lambda: converter.counters["stops"] == 1)
        firmware.until(lambda: converter.now > said + 2 * HZ)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    counters, (late_ms, longest_ms) = converter.counters, converter.timing
    silent = converter.last_sound()
    with capsys.disabled():
        after = (silent - said) / HZ * 1000
        print(f"\n{program.name}, {how}: silent {after:.0f} ms after the end of the phrase; "
              f"tick {longest_ms:.2f} ms, {late_ms:.1f} ms late at most")  # fmt: skip

    assert counters["heard"] == 1
    # a server that was stopped before it had made enough leaves the loudspeaker without samples in mid answer
    assert counters["stopped"] + counters["starved"] > 0, "the answer was over before the phrase"
    assert counters["answers"] == 0
    assert silent <= counters["stop_tick"] * 160 + FADE
    assert not converter.played[silent : converter.now].any()
