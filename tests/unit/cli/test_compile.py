# SPDX-License-Identifier: Apache-2.0
"""`dpfedge compile`: mistakes are found before anything is fetched."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dpfedge.binding import Bound
from dpfedge.cli import main
from dpfedge.compiler.nodes import Nodes
from dpfedge.errors import BackendError
from dpfedge.hardware.board import VARIABLE, board_files
from dpfedge.tensors import TensorSpec

RECIPE = """\
name: voice
version: "1"
models:
  vad: {family: silero-vad, source: "folder:none", licence: MIT}
pipeline:
  stages:
    decoder: {model: vad}
"""


def compiled(folder: Path, text: str) -> int:
    """The exit code of compiling `text`."""
    path = folder / "voice.yaml"
    path.write_text(text)
    return main(["compile", str(path), "-o", str(folder / "voice.dpfbin")])


@pytest.mark.parametrize(("old", "new", "found"), [
    ("decoder: {model: vad}", "decoder: {model: vad, threshhold: 1}", "voice.yaml:7"),
    ("decoder: ", "decoders:\n      ", "voice.yaml:7: unknown stage kind; found decoders"),
    ("decoder:", "decoders:", "did you mean decoder?"),
    ("version:", "versoin:", "versoin"),
])  # fmt: skip
def test_compile__bad_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, found: str
) -> None:
    """Unknown keys and stages are usage errors that name the place or the nearest word; no package appears."""
    assert compiled(tmp_path, RECIPE.replace(old, new)) == 2
    assert found in capsys.readouterr().err
    assert not (tmp_path / "voice.dpfbin").exists()


def test_compile__missing_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that is not there is exit code 1 with the recipe's line."""
    assert compiled(tmp_path, RECIPE) == 1
    assert "voice.yaml:4: no such folder" in capsys.readouterr().err


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A folder with a small network and the text of a recipe for it."""
    nodes = Nodes("g")
    nodes.add("MatMul", ["x", nodes.constant("w", np.eye(16, dtype=np.float32))], "y")
    ports = [TensorSpec(name, "f32", ("n", 16)) for name in "xy"]
    (tmp_path / "net.onnx").write_bytes(nodes.model(ports[:1], ports[1:]).SerializeToString())
    return tmp_path


NET = 'name: net\nversion: "1"\nmodels:\n  net: {family: onnx, source: "folder:.", licence: LICENCE}\n'


def test_compile__compares_golden_values_of_each_board_that_is_here(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board that is only asked for is no `auto`: its target is run too, and one that two boards share once."""
    recipe = net / "net.yml"
    recipe.write_text(NET.replace("LICENCE", "MIT"))
    (net / "boards").mkdir()
    (net / "boards" / "like-host.yaml").write_text(board_files()["host"].read_text().replace("always:", "asked:"))
    monkeypatch.setenv(VARIABLE, str(net / "boards"))
    ran: list[str] = []

    def golden(bound: Bound) -> list[None]:
        ran.append(bound.board.id)
        return [None]

    monkeypatch.setattr("dpfedge.cli.compile.require_golden", golden)
    boards = ("--board", "orin", "--board", "like-host", "--board", "host")
    assert main(["compile", str(recipe), "-o", str(net / "boards.dpfbin"), *boards]) == 0
    assert ran == ["like-host"]


def test_compile__compares_golden_values(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was written is run at once where a target runs on this machine."""
    assert compiled(net, NET.replace("LICENCE", "MIT")) == 0
    assert "; 1 golden outputs agree" in capsys.readouterr().out
    assert main(["compile", str(net / "voice.yaml"), "-o", str(net / "a.dpfbin"), "--board", "rk3588", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["golden"] is None


def test_compile__wrong_answers_leave_no_package(
    net: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that this machine does not run as the reference did is not left behind."""

    def fail(bound: object) -> None:
        raise BackendError("golden run failed on 1 of 1 outputs")

    monkeypatch.setattr("dpfedge.cli.compile.require_golden", fail)

    assert compiled(net, NET.replace("LICENCE", "MIT")) == 1
    assert "golden run failed" in capsys.readouterr().err
    assert not (net / "voice.dpfbin").exists()

    (net / "voice.dpfbin").write_text("the last one that was good")
    assert compiled(net, NET.replace("LICENCE", "MIT")) == 1
    assert (net / "voice.dpfbin").read_text() == "the last one that was good"
    assert [path.name for path in net.glob(".*")] == []


def test_compile__an_unsigned_package_never_takes_the_place_of_a_signed_one(
    net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between writing and signing leaves what was there."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dpfedge.signing.sign_package", interrupted)
    (net / "voice.yaml").write_text(NET.replace("LICENCE", "MIT"))
    (net / "voice.dpfbin").write_text("signed")
    key = Path(__file__).parents[2] / "golden/keys/test-oem.key"

    assert main(["compile", str(net / "voice.yaml"), "-o", str(net / "voice.dpfbin"), "--sign", str(key)]) == 130
    assert (net / "voice.dpfbin").read_text() == "signed"
    assert [path.name for path in net.glob(".*")] == []


def test_compile__licence_must_be_spdx(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A licence SPDX does not list names the recipe's line."""
    assert compiled(net, NET.replace("LICENCE", "Free")) == 1
    assert "voice.yaml:4: not an SPDX licence expression; found 'Free'" in capsys.readouterr().err


def test_compile__signs_what_it_wrote(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With every key that is named, after its answers were compared."""
    (net / "voice.yaml").write_text(NET.replace("LICENCE", "MIT"))
    golden = Path(__file__).parents[2] / "golden"
    keys = [part for name in ("supplier", "oem") for part in ("--sign", str(golden / f"keys/test-{name}.key"))]
    out = str(net / "voice.dpfbin")

    assert main(["compile", str(net / "voice.yaml"), "-o", out, *keys]) == 0
    assert main(["verify", out, "--trust", str(golden / "trust")]) == 0
    assert capsys.readouterr().out.count(": trusted\n") == 2


def test_compile__a_key_that_is_not_there(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said before the work."""
    (net / "voice.yaml").write_text(NET.replace("LICENCE", "MIT"))
    out = net / "voice.dpfbin"

    assert main(["compile", str(net / "voice.yaml"), "-o", str(out), "--sign", str(net / "none.key")]) == 2
    assert "none.key: cannot read: No such file or directory" in capsys.readouterr().err
    assert not out.exists()
