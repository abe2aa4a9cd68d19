# SPDX-License-Identifier: Apache-2.0
"""`dpfedge rollback`: back, and back again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.cli import main

Output = pytest.CaptureFixture[str]
Write = Callable[..., Path]


def test_rollback__swaps(own_store: Path, write: Write, capsys: Output) -> None:
    """Twice is nothing; without a previous one it is a usage error."""
    assert main(["install", str(write("1")), "--allow-unsigned"]) == 0
    assert main(["rollback", "voice"]) == 2
    assert "'voice' has no previous package; install the version you want" in capsys.readouterr().err
    assert main(["install", str(write("2")), "--allow-unsigned"]) == 0
    capsys.readouterr()

    assert main(["rollback", "voice", "--activate"]) == 0
    assert capsys.readouterr().out == "voice 1 is active\n"
    assert main(["rollback", "voice", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["active"]["version"] == "2"
    assert main(["rollback", "voicd"]) == 2
    assert "did you mean voice?" in capsys.readouterr().err
