# SPDX-License-Identifier: Apache-2.0
"""What a device does with a package, on aarch64: read, verify, run golden values, bind, hear speech, survive a kill.

Run by `check.sh` inside the userland it made, beside `listen.dpfbin`, `trust/` and `speech.wav`; nothing else is here.
"""

from __future__ import annotations

import json
import mmap
import os
import platform
import re
import signal
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dpfedge
from dpfedge import Runtime
from dpfedge.package import open_package
from dpfedge.pipeline.events import Transcript
from dpfedge.runtime import AudioFormat

HERE = Path(__file__).parent
PACKAGE, TRUST, SPEECH = HERE / "listen.dpfbin", HERE / "trust", HERE / "speech.wav"
SAID = "ever tried ever failed no matter"
SAID_FRAMES = 75_653
WRONG_WORDS_MAX = 0.17
"""One of six."""
PATIENCE_S = 240


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One command of dpfedge, to its end."""
    command = [sys.executable, "-m", "dpfedge", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def word_errors(said: list[str], heard: list[str]) -> float:
    """Words to insert, delete or replace, by words said."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1] / len(said)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    """The package in processes of its own."""
    with Runtime.open(PACKAGE, trust=[TRUST]) as one:
        yield one


def process_of(runtime: Runtime, stage: str) -> int:
    """The process of a stage; 0 while there is none."""
    return int(runtime.status(memory=False)["stages"][stage]["pid"] or 0)


def hear(runtime: Runtime) -> list[str]:
    """The words of the recording."""
    with wave.open(str(SPEECH)) as file:
        samples, rate = file.readframes(SAID_FRAMES), file.getframerate()
    events = runtime.transcribe(samples, AudioFormat("pcm_s16le", rate))
    text = " ".join(event.text for event in events if isinstance(event, Transcript))
    return re.sub(r"[^a-z' ]", " ", text.lower()).split()


def test_machine__is_the_one_that_is_meant() -> None:
    """An aarch64 process, from the wheel, with the page size that was asked for."""
    assert platform.machine() == "aarch64"
    assert "site" in Path(dpfedge.__file__).parts
    assert int(os.environ["DPF_PAGE"]) == mmap.PAGESIZE


def test_package__is_read() -> None:
    """Every section is there and mapped."""
    package = open_package(PACKAGE, check="fast")

    assert set(package.manifest.models) == {"vad", "speech"}


def test_verify__bytes_signature_and_golden_values() -> None:
    """Digests, Ed25519, and the graphs' outputs within the recorded tolerances."""
    done = run("verify", str(PACKAGE), "--trust", str(TRUST), "--run", "--json")
    row = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    print(json.dumps(row)[:2000])


def test_bind__the_boards_target() -> None:
    """The device tree says which board, the board which target."""
    done = run("bind", str(PACKAGE), "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["target"] == "cpu-armv8.2-a-orin"


def test_probe__cpu_pages_and_board() -> None:
    """The emulated core, and the page size the kernel tells the process."""
    done = run("probe", "--json")
    data: dict[str, Any] = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert (data["cpu"]["arch"], data["cpu"]["level"]) == ("aarch64", "armv8.2-a")
    assert {"neon", "dotprod", "fp16", "atomics"} <= set(data["cpu"]["features"])
    assert data["page_bytes"] == mmap.PAGESIZE


def test_doctor__says_what_is_wrong() -> None:
    """It ends with a report, not with a trace."""
    done = run("doctor", "--json")
    if "invalid choice" in done.stderr or "unknown" in done.stderr:
        pytest.skip("dpfedge has no `doctor` yet")

    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 3), done.stderr


def test_speech__word_error_rate(runtime: Runtime) -> None:
    """A recording through two stage processes and two models."""
    assert word_errors(SAID.split(), hear(runtime)) <= WRONG_WORDS_MAX


@pytest.mark.parametrize("stage", ["encoder", "decoder"])
def test_killed_stage__is_back_for_the_next_request(runtime: Runtime, stage: str) -> None:
    """SIGKILL to a stage process; the same words come from its successor."""
    pid = process_of(runtime, stage)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while process_of(runtime, stage) in (0, pid):
        assert time.monotonic() < deadline, f"no other {stage}"
        time.sleep(0.2)

    assert word_errors(SAID.split(), hear(runtime)) <= WRONG_WORDS_MAX
