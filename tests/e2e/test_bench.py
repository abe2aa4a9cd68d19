# SPDX-License-Identifier: Apache-2.0
"""`dpfedge bench` on the real package: the table is printed and the JSON has what BENCH.md and CI read from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dpfedge.bench.report import SCHEMA_VERSION

SERIES = {
    "bind": "ms",
    "cold start to ready": "ms",
    "end of speech → first audio": "ms",
    "endpoint → first audio": "ms",
    "end of speech → transcript": "ms",
    "end of speech → first text": "ms",
    "time to first token": "ms",
    "decode": "tokens/s",
    "prefill": "ms",
    "recognition real-time factor": "s/s",
    "speech real-time factor": "s/s",
}
KEYS = {"schema", "machine", "series", "package", "board", "question", "copies", "memory", "idle"}


@pytest.fixture(scope="module")
def bench(voice_package: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What the shortest bench prints and writes."""
    out = tmp_path_factory.mktemp("bench") / "bench.json"
    command = [sys.executable, "-m", "dpfedge", "bench", str(voice_package), "--board", "host"]
    short = ["--turns", "1", "--rounds", "1", "--idle", "1", "--json", str(out)]
    short += ["--trust", os.environ["DPFEDGE_TRUST"]]  # handed on to the process that is started cold
    environ = {"COLUMNS": "160", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([*command, *short], capture_output=True, text=True, timeout=300, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(out.read_text())


def test_json__has_every_series_with_its_unit(bench: tuple[str, dict[str, Any]]) -> None:
    """Each measured at least once, with its spread."""
    found = bench[1]

    assert set(found) == KEYS
    assert found["schema"] == SCHEMA_VERSION
    assert {row["name"]: row["unit"] for row in found["series"]} == SERIES
    for row in found["series"]:
        assert row["n"] >= 1, row["name"]
        assert set(row) == {"name", "unit", "n", "p50", "p90", "p99", "sigma", "min", "max", "samples"}
        assert row["p50"] > 0


def test_json__says_what_was_asked_and_what_it_cost(bench: tuple[str, dict[str, Any]]) -> None:
    """The answer makes sense, no tensor byte was copied, every process has its memory."""
    found = bench[1]

    assert "capital of France" in found["question"]["heard"]
    assert "Paris" in found["question"]["answer"]
    assert found["copies"] == {"copies_per_turn": 0, "dropped": 0}
    processes = found["memory"]["processes"]
    assert set(processes) == {"decoder", "encoder", "llm", "voice", "server", "zygote"}
    assert all(0 < row["pss_mb"] <= row["rss_mb"] for row in processes.values())
    assert found["memory"]["pss_mb"] == pytest.approx(sum(row["pss_mb"] for row in processes.values()))
    assert found["idle"]["seconds"] == 1
    assert found["machine"]["cores"] >= 1


def test_table__is_printed(bench: tuple[str, dict[str, Any]]) -> None:
    """A row a series and a process; copies and idleness as sentences."""
    shown = bench[0]

    assert all(name in shown for name in (*SERIES, "P50", "P99", "decoder", "zygote", "together"))
    assert "copies of tensor bytes between stages per turn: 0" in shown
    assert "% of one core" in shown
