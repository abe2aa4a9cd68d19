# SPDX-License-Identifier: Apache-2.0
"""What the store's commands share."""

from __future__ import annotations

import argparse
from pathlib import Path

from dpfedge.cli.storing import add_store_arguments, collected_json, collected_lines, told_servers
from dpfedge.store import Store
from dpfedge.store.collect import Collected


def test_arguments__of_reading_and_changing_commands() -> None:
    """Only who changes the store waits for it."""
    for changes in (True, False):
        parser = argparse.ArgumentParser()
        add_store_arguments(parser, changes=changes)
        args = parser.parse_args(["--store", "/x y", "--json"])
        assert args.store == Path("/x y")
        assert hasattr(args, "wait") is changes


def test_collected__for_people_and_programs() -> None:
    """What is kept names the processes."""
    one = Collected({Path("/s/a"): 7, Path("/s/b"): 5}, {Path("/s/c"): [4, 9]})

    assert collected_json(one) == {"deleted": {"/s/a": 7, "/s/b": 5}, "kept": {"/s/c": [4, 9]}}
    assert collected_lines(one) == [
        "deleted 2 files, 12 bytes", "kept /s/c: in use by pid 4, 9; `dpfedge gc` deletes it later",
    ]  # fmt: skip


def test_told_servers__only_when_wanted(tmp_path: Path) -> None:
    """Without --activate nobody is told."""
    assert told_servers(Store(tmp_path), False) == ([], None)
    assert told_servers(Store(tmp_path), True)[1] is not None
