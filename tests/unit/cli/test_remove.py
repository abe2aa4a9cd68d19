# SPDX-License-Identifier: Apache-2.0
"""`dpfedge remove`: the name is gone, and its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.cli import main

Output = pytest.CaptureFixture[str]
Write = Callable[..., Path]


def test_remove__frees_the_disk(own_store: Path, write: Write, capsys: Output) -> None:
    """A second time there is nothing to remove."""
    assert main(["install", str(write("1")), "--allow-unsigned"]) == 0
    capsys.readouterr()

    assert main(["remove", "voice"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "removed voice"
    assert list((own_store / "files").iterdir()) == []
    assert main(["remove", "voice"]) == 2
    assert main(["install", str(write("1")), "--allow-unsigned"]) == 0
    capsys.readouterr()
    assert main(["remove", "voice", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["removed"] == "voice"
    assert len(shown["deleted"]) == 2
