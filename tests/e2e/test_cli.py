# SPDX-License-Identifier: Apache-2.0
"""The command on the real package and on the machine it runs on: what it prints and which exit code it gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STAGES = {"decoder", "encoder", "llm", "voice"}


def dpfedge(*arguments: object) -> subprocess.CompletedProcess[str]:
    """One run of the command."""
    command = [sys.executable, "-m", "dpfedge", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_serve__on_another_board_is_refused_with_reasons(voice_package: Path) -> None:
    """Exit 3; what was looked for, what was found, and the operator's two ways out. Nothing listens."""
    if Path("/proc/device-tree/compatible").exists():
        pytest.skip("this machine may be an Orin")
    done = dpfedge("serve", voice_package, "--board", "orin", "--port", 0)

    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("dpfedge: ")
    assert "Traceback" not in done.stderr
    for part in (
        "board orin",
        "looked for device tree compatible nvidia,p3737-0000+p3701-*",
        "found no device tree",
        "run it on that board",
        "--board auto (here: host)",
    ):
        assert part in done.stderr, done.stderr
    assert "listening" not in done.stderr


def test_bind__json_is_the_decision(voice_package: Path) -> None:
    """The target that runs here, and that nothing was chosen in silence."""
    done = dpfedge("bind", voice_package, "--board", "host", "--json")

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["board"], found["package"]["name"]) == ("host", "voice")
    assert [target["backend"]["name"] for target in found["targets"]] == ["cpu"]
    assert {place["device"] for place in found["models"].values()} == {"cpu:0"}
    assert [place["degraded"] for place in found["models"].values()] == [None] * 4
    assert found["refusals"] == []
    assert done.stderr == ""


def test_bind__to_another_board_says_why_in_json_too(voice_package: Path) -> None:
    """Exit 3; a program reads every field, a person the line on stderr; without --json stdout is empty."""
    done = dpfedge("bind", voice_package, "--board", "h100", "--json")

    assert done.returncode == 3
    assert "looked for PCI device 10de:2330" in done.stderr
    told = json.loads(done.stdout)
    assert (told["where"], told["exit_code"]) == ("board h100", 3)
    assert [refusal["field"] for refusal in told["refusals"]] == ["board"]
    assert dpfedge("bind", voice_package, "--board", "h100").stdout == ""


def test_inspect__json_is_the_manifest(voice_package: Path) -> None:
    """Models with licences, targets with decisions, sections with digests."""
    done = dpfedge("inspect", voice_package, "--json")

    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)
    assert manifest["name"] == "voice"
    assert set(manifest["pipeline"]["stages"]) == STAGES
    assert all(model["licence"] for model in manifest["models"].values())
    assert manifest["targets"][0]["decisions"]
    assert all(len(bytes.fromhex(section["sha256"])) == 32 for section in manifest["sections"])


def test_verify__the_real_package_is_good(voice_package: Path) -> None:
    """Every byte of it."""
    done = dpfedge("verify", voice_package, "--json")

    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["packages"]
    assert (row["good"], row["name"], row["bytes"]) == (True, "voice", voice_package.stat().st_size)


def test_package__with_a_flipped_byte_is_refused(voice_package: Path, tmp_path: Path) -> None:
    """Exit 4 before any process is started; the message says where."""
    bad = tmp_path / "bad.dpfbin"
    with voice_package.open("rb") as file:
        head = bytearray(file.read(1 << 20))
    head[20] ^= 1
    bad.write_bytes(head)
    done = dpfedge("serve", bad, "--port", 0)

    assert done.returncode == 4
    assert str(bad) in done.stderr


def test_probe_and_boards__know_this_machine() -> None:
    """The host board always matches."""
    machine = json.loads(dpfedge("probe", "--json").stdout)
    rows = {row["id"]: row for row in json.loads(dpfedge("boards", "--json").stdout)}

    assert machine["cpu"]["arch"] in ("x86_64", "aarch64")
    assert rows["host"]["matches"]
    assert sum(row["auto"] for row in rows.values()) == 1


def test_backends__found_the_cpu_by_entry_point() -> None:
    """Nothing is broken."""
    found = json.loads(dpfedge("backends", "--json").stdout)

    assert "cpu" in {row["name"] for row in found["backends"]}
    assert found["broken"] == []


def test_unknown_verb__is_a_usage_error() -> None:
    """Exit 2 and the nearest word."""
    done = dpfedge("srve")

    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean `serve`?" in done.stderr
