# SPDX-License-Identifier: Apache-2.0
"""`dpfedge gc`: what became free."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpfedge.cli import main

Output = pytest.CaptureFixture[str]


def test_gc__of_a_leftover(own_store: Path, capsys: Output) -> None:
    """Bytes for people, files for programs."""
    for arguments in (["gc"], ["gc", "--json"]):
        (own_store / "incoming").mkdir(parents=True, exist_ok=True)
        (own_store / "incoming" / "x").write_bytes(b"12345")
        assert main(arguments) == 0
    first, _, rest = capsys.readouterr().out.partition("\n")

    assert first == "deleted 1 files, 5 bytes"
    assert json.loads(rest) == {"deleted": {str(own_store / "incoming" / "x"): 5}, "kept": {}}
