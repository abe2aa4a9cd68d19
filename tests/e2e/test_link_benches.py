# SPDX-License-Identifier: Apache-2.0
"""The link benches run: shortest settings, real processes, the JSON that BENCH.md's figures come from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHES = Path(__file__).parents[1] / "bench"


def _run(name: str, tmp_path: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    out = tmp_path / "found.json"
    command = [sys.executable, str(BENCHES / name), *arguments, "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | {"PYTHONDEVMODE": "0"})
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(out.read_text())


@pytest.mark.parametrize("cores", ["each", "one", "free"])
def test_link__measures_every_way_that_is_installed(tmp_path: Path, cores: str) -> None:
    """P50 and P99 for each way and size, ratios for each target whose peer is there."""
    shown, found = _run(
        "bench_link.py", tmp_path, "--rounds", "2", "--trips", "10", "--sizes", "64", "4096", "--cores", cores
    )

    ways = {row["way"] for row in found["rows"]}
    assert {"dpfedge, blocking", "futex in C", "unix socket", "multiprocessing.Pipe"} <= ways
    assert ("dpfedge, spinning" in ways) == (cores != "one")
    assert all(0 < row["p50_us"] <= row["p99_us"] and row["trips"] == 20 for row in found["rows"])
    assert {row["theirs"] for row in found["figures"]} >= {"futex in C", "itself at 64 B"}
    assert all(len(row["ratios"]) == 2 for row in found["figures"])
    assert "dpfedge, blocking / futex in C" in shown


@pytest.mark.parametrize("read", [(), ("--read",)])
def test_frames__pass_three_stages_without_a_copy(tmp_path: Path, read: tuple[str, ...]) -> None:
    """Every frame reaches every stage; the links counted no copy and no drop."""
    _, found = _run("bench_frames.py", tmp_path, "--frames", "20", "--rounds", "1", "--bytes", "100000", *read)

    assert (found["copies"], found["dropped"]) == (0, 0)
    assert (found["sent"], found["received"]) == (20 * 2 * 4, 20 * 2 * 6)
    assert found["ratio"] > 0


def test_steady__loses_nothing(tmp_path: Path) -> None:
    """A few seconds: every message answered, requests cancelled, descriptors as they were."""
    shown, found = _run("bench_steady.py", tmp_path, "--minutes", "0.1", "--rate", "500")

    assert found["sent"] == found["back"] > 100
    assert found["cancelled"] > 0
    assert found["left"] == 0
    assert all(row["fd_constant"] for row in found["processes"])
    assert "every message answered: True" in shown
