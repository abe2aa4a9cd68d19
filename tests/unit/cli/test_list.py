# SPDX-License-Identifier: Apache-2.0
"""`dpfedge list`: both slots of each name, and what is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.cli import main
from dpfedge.store import Store

Output = pytest.CaptureFixture[str]
Write = Callable[..., Path]


def test_list__names_both_slots(own_store: Path, write: Write, capsys: Output) -> None:
    """And says what the next use of a changed file costs."""
    for version in ("1", "2"):
        assert main(["install", str(write(version)), "--allow-unsigned", "--no-golden"]) == 0
    os.utime(Store().active("voice").path)
    size = Store().active("voice").path.stat().st_size
    capsys.readouterr()

    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"voice 2, {size} bytes, not signed, golden skipped, changed; checked in full at each use",
        "  previous 1, unchanged",
    ]
    assert main(["list", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["packages"][0]
    assert (row["name"], row["active"]["version"], row["previous"]["version"]) == ("voice", "2", "1")
    assert row["problem"] is None


def test_list__damaged_and_missing(own_store: Path, write: Write, capsys: Output) -> None:
    """The others are shown; exit code 1."""
    for name in ("a", "b"):
        assert main(["install", str(write("1", name)), "--allow-unsigned"]) == 0
    (own_store / "names" / "a.json").write_text("")
    Store().active("b").path.unlink()
    capsys.readouterr()

    assert main(["list"]) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == "a: damaged"
    assert shown.out.splitlines()[1].endswith(", missing")
    assert "the slots of 'a' are damaged; install the package again" in shown.err


def test_list__of_no_store(tmp_path: Path, capsys: Output) -> None:
    """It is not made by looking."""
    assert main(["list", "--store", str(tmp_path / "x")]) == 0
    assert capsys.readouterr().out == f"nothing is installed in {tmp_path / 'x'}\n"
    assert not (tmp_path / "x").exists()
