# SPDX-License-Identifier: Apache-2.0
"""What booted boards answered (`check.sh`, `visit.sh`), judged: probe, bind, serve, and the recordings they took.

Run on the machine that emulated them, by `check.sh` alone. It starts nothing.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dpfedge.binding import look
from dpfedge.hardware.recording import record

VISITS = Path(os.environ["VISITS"])
NAMES = os.environ["WANTED"].split()
BOOTED = Path(__file__).parents[1] / "fixtures/booted"
PAGE_BYTES = {"4k": 4096, "16k": 16384}
GPUS = {"orin": "sm_87", "orin-nano": "sm_87", "thor": "sm_110", "rk3588": "mali-g610"}
LEVELS = {"thor": "armv9.0-a"}
"""Of the emulated cores; those of the others are a Cortex-A76."""

each = pytest.mark.parametrize("name", NAMES)


def said(name: str, step: str) -> str:
    """What a step printed; the test fails, with what the machine said last, where the step was not reached."""
    path = VISITS / name / "results" / f"{step}.out"
    if not path.exists():
        console = VISITS / name / "console"
        pytest.fail(f"no {step}: " + (console.read_text(errors="replace")[-600:] if console.exists() else "no boot"))
    return path.read_text()


def code(name: str, step: str) -> int:
    """A step's exit code."""
    said(name, step)
    return int((VISITS / name / "results" / f"{step}.rc").read_text())


def complaint(name: str, step: str) -> str:
    """What a step wrote to stderr."""
    return (VISITS / name / "results" / f"{step}.err").read_text()


def target(name: str) -> str:
    """The id of the board."""
    return (VISITS / name / "target").read_text().strip()


def facts(name: str) -> Mapping[str, Any]:
    """What `dpfedge probe --json` said."""
    assert code(name, "probe") == 0, complaint(name, "probe")
    found: dict[str, Any] = json.loads(said(name, "probe"))
    return found


@each
def test_probe__the_board_its_cores_and_its_pages(name: str) -> None:
    """The device tree is the board's, the page size the booted kernel's, the GPU the board's files'."""
    found, page = facts(name), name.rpartition("-")[2]

    assert found["page_bytes"] == PAGE_BYTES[page]
    assert (found["cpu"]["arch"], found["cpu"]["level"]) == ("aarch64", LEVELS.get(target(name), "armv8.2-a"))
    assert found["cpu"]["physical"] == len(found["cpu"]["cores"])
    assert GPUS[target(name)] in [accelerator["arch"] for accelerator in found["accelerators"]]
    assert "0123456789" not in said(name, "probe")


@each
def test_bind__the_target_of_the_board(name: str) -> None:
    """`--board auto` is the default, and the package has a target for each of the boards."""
    assert code(name, "bind") == 0, complaint(name, "bind")
    answer = json.loads(said(name, "bind"))

    assert answer["board"] == target(name)
    assert answer["targets"][0]["id"].startswith(f"cpu-{LEVELS.get(target(name), 'armv8.2-a')}-")
    assert target(name) in answer["targets"][0]["id"]


@each
def test_bind__refuses_a_package_of_another_board(name: str) -> None:
    """It says which board the package is for and which one this is."""
    assert code(name, "bind-other") == 3
    text = said(name, "bind-other")

    assert "imx95" in text
    assert target(name) in text


@each
def test_serve__refuses_a_package_of_another_board(name: str) -> None:
    """Before a port is opened; the exit code and the words are those of `dpfedge bind`."""
    assert code(name, "serve-refused") == 3
    text = complaint(name, "serve-refused")

    assert "board imx95" in text
    assert "listening" not in text
    assert "Traceback" not in text


@each
def test_serve__accepts_the_boards_package(name: str) -> None:
    """It listens, is ready, answers, and ends in order at SIGTERM."""
    assert code(name, "serve-accepted") == 0, complaint(name, "serve-accepted")
    events = [json.loads(line)["event"] for line in said(name, "serve-accepted").splitlines() if line.startswith("{")]

    assert (events[0], events[-1], events.count("ready")) == ("listening", "stopped", 1)
    assert json.loads((VISITS / name / "results/models.json").read_text())["data"]


@pytest.mark.parametrize("name", os.environ["TESTED"].split())
def test_units__on_real_pages(name: str) -> None:
    """Unit tests of link, package, store and CPU backend on pages that a kernel really has."""
    assert code(name, "units") == 0, said(name, "units")[-6000:] + complaint(name, "units")[-2000:]
    print(said(name, "units").splitlines()[-1])


def steady(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """A recording without what differs from boot to boot."""
    kept = dict(files)
    assert kept.pop("proc/meminfo").startswith(b"MemTotal:")  # less what the kernel and its memory disk take
    kept.pop("proc/sys/kernel/osrelease")
    return kept


@each
def test_recording__is_the_fixture(name: str) -> None:
    """What this boot recorded is what tests/fixtures/booted has; RECORD=1 renews it."""
    assert code(name, "record") == 0, complaint(name, "record")
    found, kept = VISITS / name / "results/recording", BOOTED / name
    assert look(sysroot=found).board.id == target(name)
    if os.environ.get("RECORD"):
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(found, kept)
    elif not kept.is_dir():
        pytest.fail(f"{kept} is not there: run `make test-boards RECORD=1` once and commit it")

    assert steady(record(found)) == steady(record(kept))
