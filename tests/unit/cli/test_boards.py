# SPDX-License-Identifier: Apache-2.0
"""`dpfedge boards`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.cli import main

Record = Callable[[str], Path]


def test_boards__marks_this_machine(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """Matching boards are marked, the one that auto takes is named."""
    assert main(["boards", "--sysroot", str(record("orin"))]) == 0

    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert rows["orin"].partition("NVIDIA Jetson AGX Orin")[2].strip() == "yes, --board auto takes it"
    assert rows["host"].endswith("yes")
    assert rows["rk3588"].endswith("no")


def test_boards__json(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """Each board says what it looks for and what was found."""
    assert main(["boards", "--json", "--sysroot", str(record("mi300x"))]) == 0

    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["mi300x"]["matches"], rows["mi300x"]["auto"], rows["host"]["auto"]) == (True, True, False)
    assert rows["orin"]["found"] == ["no device tree"]
