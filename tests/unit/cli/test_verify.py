# SPDX-License-Identifier: Apache-2.0
"""`dpfedge verify` checks every file it is given."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dpfedge.cli import main

TINY = Path(__file__).parents[2] / "golden/v1/tiny.dpfbin"


def test_verify__good_and_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged file gives exit code 4 and its place; the file behind it is checked all the same."""
    damaged = Path(shutil.copy(TINY, tmp_path))
    with damaged.open("r+b") as file:
        file.seek(65540)
        file.write(b"!")

    assert main(["verify", "--allow-unsigned", str(damaged), str(TINY)]) == 4

    out, err = capsys.readouterr()
    assert "section 'weights/tiny-llm', bytes 65536 to 74432: section is damaged" in err
    assert out.startswith(f"{TINY}: good: tiny 1.0.0, format 1.0, 4 sections")


def test_verify__good(capsys: pytest.CaptureFixture[str]) -> None:
    """A good package gives exit code 0."""
    assert main(["verify", str(TINY), "--allow-unsigned"]) == 0
    assert "good" in capsys.readouterr().out


def test_verify__json_names_good_and_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One row a file; what is wrong is text, the same as on stderr."""
    empty = tmp_path / "empty.dpfbin"
    empty.touch()

    assert main(["verify", "--json", "--allow-unsigned", str(empty), str(TINY)]) == 4

    out, err = capsys.readouterr()
    bad, good = json.loads(out)["packages"]
    assert (bad["good"], bad["path"]) == (False, str(empty))
    assert err == f"dpfedge: {bad['error']}\n"
    assert (good["good"], good["name"], good["version"], good["sections"]) == (True, "tiny", "1.0.0", 4)
    assert len(good["manifest_sha256"]) == 64


def test_verify__run_compares_golden_values(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--run` prints what was found on this board; one output that is off is exit code 1."""
    row = {
        "model": "llm", "graph": "step", "case": 0, "port": "logits", "max_abs": 0.5, "max_abs_allowed": 1.0,
        "rel_l2": 0.1, "rel_l2_allowed": 0.2, "passed": True,
    }  # fmt: skip
    boards = []
    monkeypatch.setattr("dpfedge.cli.verify.golden_rows", lambda package, board: boards.append(board) or [row])

    assert main(["verify", "--run", "--board", "host", "--allow-unsigned", str(TINY)]) == 0
    assert "llm.step  logits      0.5        1     0.1      0.2  pass" in capsys.readouterr().out
    row["passed"] = False
    assert main(["verify", "--run", "--json", "--allow-unsigned", str(TINY)]) == 1
    out, err = capsys.readouterr()
    assert "golden run failed on 1 of 1 outputs: llm.step: logits" in err
    assert json.loads(out)["packages"][0]["golden"] == [row]
    assert boards == ["host", "auto"]
