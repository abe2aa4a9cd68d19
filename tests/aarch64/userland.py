# SPDX-License-Identifier: Apache-2.0
"""What a device does with a package, on aarch64: read, verify, run golden values, hear speech, bind, survive a kill.

Run by `check.sh` inside the userland it made, beside `listen.dpfbin`, `trust/` and `speech.wav`; nothing else is here.
"""

from __future__ import annotations

import ctypes
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
from speech import SAID

import dpfedge
from dpfedge import Runtime
from dpfedge.binding.parity import read_side, words, words_apart
from dpfedge.package import open_package
from dpfedge.pipeline.events import Transcript
from dpfedge.runtime import AudioFormat

HERE = Path(__file__).parent
PACKAGE, TRUST, SPEECH = HERE / "listen.dpfbin", HERE / "trust", HERE / "speech.wav"
WRONG_WORDS_MAX = 0.17
"""One of six."""
ANSWERS = HERE / f"arm-{mmap.PAGESIZE}.json"
"""What this machine computed and heard, for the parity report."""
PATIENCE_S = 240


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One command of dpfedge, to its end."""
    command = [sys.executable, "-m", "dpfedge", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


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
        samples, rate = file.readframes(file.getnframes()), file.getframerate()
    events = runtime.transcribe(samples, AudioFormat("pcm_s16le", rate))
    return words(" ".join(event.text for event in events if isinstance(event, Transcript)))


def test_machine__is_the_one_that_is_meant() -> None:
    """An aarch64 process, from the wheel, with the page size that was asked for."""
    assert platform.machine() == "aarch64"
    assert "site" in Path(dpfedge.__file__).parts
    assert int(os.environ["DPF_PAGE"]) == mmap.PAGESIZE


def test_libdpfedge__is_in_the_wheel() -> None:
    """The C library for head units loads, and refuses what is no server's path (DPF_CLIENT_BAD)."""
    root = Path(dpfedge.__file__).parent / "_client"
    library = ctypes.CDLL(str(root / "lib/libdpfedge.so.1"))

    assert library.dpf_client_open(None, None, None, 0) == int(
        re.search(r"DPF_CLIENT_BAD\s*=\s*(-?\d+)", (root / "include/dpf/client.h").read_text())[1]  # type: ignore[index]
    )
    assert (root / "lib/libdpfedge.so").is_file()
    assert "pcfiledir" in (root / "lib/pkgconfig/dpfedge.pc").read_text()


def test_package__is_read() -> None:
    """Every section is there and mapped."""
    package = open_package(PACKAGE, check="fast")

    assert set(package.manifest.models) == {"vad", "speech"}


def test_verify__bytes_signature_golden_values_and_speech() -> None:
    """Digests, Ed25519, the graphs' outputs within the recorded tolerances, and speech through two stages."""
    kept = ("--answers", str(ANSWERS), "--speech", str(SPEECH), SAID)
    done = run("verify", str(PACKAGE), "--trust", str(TRUST), "--json", *kept)

    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["packages"][0]["golden"]
    assert all(row["passed"] for row in rows)
    print(max((row["rel_l2"] / row["rel_l2_allowed"], row["port"]) for row in rows if row["rel_l2_allowed"]))
    [heard] = read_side(ANSWERS).speech
    assert heard.errors <= WRONG_WORDS_MAX, heard.heard


def test_bind__the_boards_target() -> None:
    """The device tree says which board, the board which target."""
    done = run("bind", str(PACKAGE), "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["targets"][0]["id"] == "cpu-armv8.2-a-orin"


def test_probe__cpu_pages_and_board() -> None:
    """The emulated core, and the page size the kernel tells the process."""
    done = run("probe", "--json")
    data: dict[str, Any] = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert (data["cpu"]["arch"], data["cpu"]["level"]) == ("aarch64", "armv8.2-a")
    assert {"neon", "dotprod", "fp16", "atomics"} <= set(data["cpu"]["features"])
    assert data["page_bytes"] == mmap.PAGESIZE


def test_backends__every_plugin_loads() -> None:
    """The wheels of all plugins are here; without drivers each says what it lacks, and the CPU has its device."""
    done = run("backends", "--json")
    found = json.loads(done.stdout)
    backends = {one["name"]: one for one in found["backends"]}

    assert {"cpu", "cuda", "jetson", "opencl", "rocm"} <= set(backends)
    assert [device["kind"] for device in backends["cpu"]["devices"]] == ["cpu.aarch64"]
    assert found["broken"] == []
    assert "Traceback" not in done.stderr


def test_doctor__says_what_is_wrong() -> None:
    """It ends with a report, not with a trace; its exit code is what the report says."""
    done = run("doctor", "--json")

    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout)["ok"] is (done.returncode == 0)


@pytest.mark.parametrize("stage", ["encoder", "decoder"])
def test_killed_stage__is_back_for_the_next_request(runtime: Runtime, stage: str) -> None:
    """SIGKILL to a stage process; the same words come from its successor."""
    pid = process_of(runtime, stage)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while process_of(runtime, stage) in (0, pid):
        assert time.monotonic() < deadline, f"no other {stage}"
        time.sleep(0.2)

    assert words_apart(words(SAID), hear(runtime)) <= WRONG_WORDS_MAX * len(words(SAID))
