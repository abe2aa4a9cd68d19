# SPDX-License-Identifier: Apache-2.0
"""`dpfedge bind`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.cli import main
from dpfedge.package import PackageWriter

Record = Callable[[str], Path]


@pytest.fixture
def package(tmp_path: Path) -> str:
    """A package with a target for RK3588 and one for any x86-64."""
    path = tmp_path / "a package.dpfbin"
    base = {"backend": "cpu", "backend_abi": 1, "memory_bytes": 1, "decisions": []}
    graphs: dict[str, Any] = {
        "graphs": {"g": {"section": "g", "inputs": [], "outputs": [], "weights": [], "options": {}}}
    }
    with PackageWriter(path, name="demo", version="1") as writer:
        writer.add("g", "graph", b"graph")
        writer.finish(
            {
                "models": {
                    "vad": {"family": "silero-vad", "licence": "MIT", "source": "t", "config": {}, "assets": {}}
                },
                "targets": [
                    {**base, "id": "rk", "whitelist": ["board", "rk3588"], "models": {"vad": graphs}},
                    {**base, "id": "x86", "whitelist": ["class", "cpu.x86_64"], "models": {"vad": graphs}},
                ],
                "licences": [{"name": "vad", "spdx": "MIT"}],
            }
        )
    return str(path)


def test_bind__prints_the_choice(package: str, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """The default finds the board by itself."""
    assert main(["bind", package, "--sysroot", str(record("rk3588"))]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "package  demo 1",
        "board    rk3588 (Rockchip RK3588)",
        "target   rk, backend cpu 0.1.0",
        "device   cpu:0 armv8.2-a: vad",
    ]


def test_bind__explains_refusals(package: str, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """`--explain` adds why earlier targets were not taken."""
    assert main(["bind", package, "--board", "host", "--explain", "--sysroot", str(record("x86"))]) == 0

    assert "refused  target rk: for another board: wanted board rk3588; found host" in capsys.readouterr().out


def test_bind__wrong_board_is_exit_3(package: str, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names what was looked for, what was found and both ways on."""
    assert main(["bind", package, "--board", "orin", "--sysroot", str(record("x86"))]) == 3

    error = capsys.readouterr().err
    assert error.startswith("dpfedge: board orin: this machine is not NVIDIA Jetson AGX Orin: looked for device tree")
    assert "run it on that board, or choose this machine with --board auto (here: host) or --board host" in error


def test_bind__wrong_board_as_json(package: str, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """A program reads the same parts; the short text is on standard error."""
    assert main(["bind", package, "--board", "orin", "--json", "--sysroot", str(record("x86"))]) == 3

    output = capsys.readouterr()
    data = json.loads(output.out)
    assert data["error"].startswith("this machine is not NVIDIA Jetson AGX Orin")
    [refusal] = data["refusals"]
    assert (refusal["target"], refusal["field"]) == (None, "board")
    assert refusal["wanted"].startswith("device tree compatible nvidia,p3737")
    assert refusal["found"].startswith("no device tree, x86_64")
    assert "--board auto (here: host)" in refusal["remedy"]
    assert output.err.startswith("dpfedge: this machine is not")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_bind__refused_is_exit_3(
    package: str, record: Record, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """With and without JSON a refused package ends with 3 and says so on standard error."""
    assert main(["bind", package, *options, "--sysroot", str(record("orin"))]) == 3

    output = capsys.readouterr()
    assert "no target runs on board orin" in output.err
    if options:
        assert [item["target"] for item in json.loads(output.out)["refusals"]] == ["rk", "x86"]
    else:
        assert "for this board: compile the package with --board orin" in output.err


def test_bind__json(package: str, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """The decision as one object."""
    assert main(["bind", package, "--json", "--sysroot", str(record("x86"))]) == 0

    data = json.loads(capsys.readouterr().out)
    assert (data["board"], data["targets"][0]["id"], data["models"]["vad"]["device"]) == ("host", "x86", "cpu:0")


def test_bind__recording_of_this_machine_answers_as_it_does(
    package: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Folder and tar file give the same JSON, byte for byte, as the machine itself."""
    assert main(["probe", "--record", str(tmp_path / "car"), "--tar", str(tmp_path / "car.tar")]) == 0
    capsys.readouterr()

    answers = []
    for sysroot in ([], ["--sysroot", str(tmp_path / "car")], ["--sysroot", str(tmp_path / "car.tar")]):
        codes = main(["bind", package, "--json", *sysroot]), main(["bind", package, "--explain", *sysroot])
        answers.append((codes, capsys.readouterr().out))
    assert answers[0] == answers[1] == answers[2]


def test_bind__name_that_is_not_installed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word that is no file is looked up in the store; the message says so."""
    monkeypatch.setenv("DPFEDGE_STORE", str(tmp_path))

    assert main(["bind", "no-such-package"]) != 0
    assert "no-such-package" in capsys.readouterr().err


def test_bind__no_such_package(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A missing file is an error with its path, not a traceback; as JSON too."""
    assert main(["bind", str(tmp_path / "no.dpfbin")]) == 4
    assert "no.dpfbin" in capsys.readouterr().err

    assert main(["bind", "--json", str(tmp_path / "no.dpfbin")]) == 4
    assert json.loads(capsys.readouterr().out)["where"].endswith("no.dpfbin")
