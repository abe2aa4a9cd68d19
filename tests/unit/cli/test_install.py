# SPDX-License-Identifier: Apache-2.0
"""`dpfedge install`: what it says, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.cli import main

Output = pytest.CaptureFixture[str]
Write = Callable[..., Path]


def test_install__says_what_is_active(own_store: Path, write: Write, capsys: Output) -> None:
    """Copied, again, and the second version."""
    first = write("1")
    for arguments in ([str(first)], [str(first)], [str(write("2")), "--no-golden", "--activate"]):
        assert main(["install", "--allow-unsigned", *arguments]) == 0

    size, shown = first.stat().st_size, capsys.readouterr()
    warning = "nobody trusted has signed it; it was allowed, and each start needs --allow-unsigned"
    assert shown.err.splitlines()[0] == f"dpfedge: warning: {first}: {warning}"
    assert shown.out.splitlines() == [
        f"voice 1 is active: {size} bytes copied, NOT SIGNED, no golden records",
        "voice 1 was active already: the store had the file, NOT SIGNED, no golden records",
        f"voice 2 is active (previous: 1): {size} bytes copied, NOT SIGNED, golden run skipped",
        "no running server serves this name from this store",
    ]


def test_install__for_programs(own_store: Path, write: Write, capsys: Output) -> None:
    """One JSON object."""
    assert main(["install", str(write("1")), "--allow-unsigned", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)

    assert (shown["copied"], shown["switched"], shown["servers"], shown["previous"]) == (True, True, [], None)
    assert Path(shown["active"]["path"]).is_relative_to(own_store)
    assert shown["active"]["verified"]["golden"] == "none"


def test_install__unsigned_is_refused(own_store: Path, write: Write, tmp_path: Path, capsys: Output) -> None:
    """Exit 4; nothing is installed."""
    assert main(["install", str(write("1")), "--trust", str(tmp_path)]) == 4
    assert "the package is not signed" in capsys.readouterr().err
    assert main(["list"]) == 0
    assert "nothing is installed in" in capsys.readouterr().out


def test_install__that_is_no_package(own_store: Path, tmp_path: Path, capsys: Output) -> None:
    """Exit 4: missing, or another file."""
    (tmp_path / "x").write_text("x" * 200)
    for name, text in (("missing", "cannot open the package: No such file"), ("x", "not a dpfedge package")):
        assert main(["install", str(tmp_path / name), "--allow-unsigned"]) == 4
        assert text in capsys.readouterr().err
