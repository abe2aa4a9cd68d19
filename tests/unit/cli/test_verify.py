# SPDX-License-Identifier: Apache-2.0
"""`dpfedge verify` checks every file it is given."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.cli import main
from dpfedge.package import Package

GOLDEN = Path(__file__).parents[2] / "golden"
TINY, SIGNED, TRUST = GOLDEN / "v1/tiny.dpfbin", GOLDEN / "v1/signed.dpfbin", GOLDEN / "trust"


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


def test_verify__run_compares_golden_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--run` prints what was found on this board; one output that is off is exit code 1."""
    row = {
        "model": "llm", "graph": "step", "case": 0, "port": "logits", "max_abs": 0.5, "max_abs_allowed": 1.0,
        "rel_l2": 0.1, "rel_l2_allowed": 0.2, "passed": True,
    }  # fmt: skip
    boards = []

    def rows(package: Package, board: str, vouch: Callable[[Package], None]) -> list[dict[str, object]]:
        boards.append(board)
        vouch(package)
        return [row]

    monkeypatch.setattr("dpfedge.cli.verify.golden_rows", rows)

    assert main(["verify", "--run", "--board", "host", "--allow-unsigned", str(TINY)]) == 0
    assert "llm.step  logits      0.5        1     0.1      0.2  pass" in capsys.readouterr().out
    row["passed"] = False
    assert main(["verify", "--run", "--json", "--allow-unsigned", str(TINY)]) == 1
    out, err = capsys.readouterr()
    assert "golden run failed on 1 of 1 outputs: llm.step: logits" in err
    assert json.loads(out)["packages"][0]["golden"] == [row]
    assert boards == ["host", "auto"]


def test_verify__a_board_without_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Is refused: nothing would look at it."""
    assert main(["verify", str(TINY), "--allow-unsigned", "--board", "rk3588"]) == 2
    assert capsys.readouterr().err == "dpfedge: --board: only golden inputs need a board; add --run\n"


def test_verify__who_signed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each signature with its key, name and state; trusted by the directory that is named."""
    assert main(["verify", str(SIGNED), "--trust", str(TRUST)]) == 0

    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{SIGNED}: good: signed 1, format 1.0, 1 sections")
    assert lines == [
        "  signature of test-supplier (06e3fd8fda29bb60ab59557de61edb0a): trusted",
        "  signature of test-oem (deb2ded39dc26fce0e6085b6fc34bf6b): trusted",
    ]


def test_verify__what_nobody_trusted_signed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 4; the bytes are told to be intact; a row for programs has states and the error."""
    assert main(["verify", "--json", str(SIGNED), str(TINY), "--trust", str(tmp_path)]) == 4

    strange, unsigned = json.loads(capsys.readouterr().out)["packages"]
    assert [one["state"] for one in strange["signatures"]] == ["unknown", "unknown"]
    assert "no key that signed the package is trusted here" in strange["error"]
    assert (unsigned["good"], unsigned["signatures"]) == (False, [])
    assert main(["verify", str(TINY), "--trust", str(tmp_path)]) == 4
    out, err = capsys.readouterr()
    assert (out.startswith(f"{TINY}: intact: "), out.endswith("  no signature\n")) == (True, True)
    assert err.startswith(f"dpfedge: {TINY}: the package is not signed; ")


def test_verify__revoked_and_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A revoked version is refused also where unsigned ones are allowed."""
    trust = Path(shutil.copytree(TRUST, tmp_path / "trust"))
    (trust / "revoked.txt").write_text("deb2ded39dc26fce0e6085b6fc34bf6b # lost\n")
    wrong = Path(shutil.copy(SIGNED, tmp_path))
    with wrong.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"!")

    # a wrong signature of a revoked key says nothing
    assert main(["verify", str(SIGNED), str(wrong), "--trust", str(trust)]) == 0
    assert capsys.readouterr().out.count("signature of test-oem (deb2ded39dc26fce0e6085b6fc34bf6b): revoked") == 2
    assert main(["verify", str(wrong), "--trust", str(TRUST)]) == 4
    out, err = capsys.readouterr()
    assert "signature of test-oem (deb2ded39dc26fce0e6085b6fc34bf6b): wrong" in out
    assert "wrong signature: the manifest is not what this key signed" in err

    (trust / "revoked.txt").write_text("711e5db4424bd0b7cc002dd49c4db7f8cfa9fdddcb7e0c01c83fcd7d575871b8")
    assert main(["verify", str(SIGNED), "--trust", str(trust), "--allow-unsigned"]) == 4
    assert "this version of the package was revoked" in capsys.readouterr().err
