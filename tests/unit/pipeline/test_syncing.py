# SPDX-License-Identifier: Apache-2.0
"""A stage's `sync` against its kind and its links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import ConfigError
from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.syncing import read_sync
from dpfedge.stage.join import Sync
from dpfedge.stage.kinds import StageKind, find_kind

CODE = """
from dpfedge.stage.each import Each
from dpfedge.stage.sets import Sets
from dpfedge.stage.ports import Port, Ports
class Fuse(Sets):
    ports = Ports({"frames": Port("u8"), "speech": Port("u8")}, {})
class Plain(Each):
    ports = Fuse.ports
class Eye(Each):
    ports = Ports({}, {"frames": Port("u8", slots=16)})
"""
LINKS, SLOTS = {"eye.fuse": "frames", "ear.fuse": "speech"}, {"eye.fuse": 8, "ear.fuse": 6}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the stages' code."""
    (tmp_path / "code.py").write_text(CODE)
    return tmp_path


def kind(name: str, folder: Path) -> StageKind:
    """A kind of that code."""
    return find_kind(name, where="x", folder=folder)


def test_sync__that_fits(folder: Path) -> None:
    """As deep as the smallest link allows."""
    found = read_sync({"lead": "frames", "depth": 4}, kind("code:Fuse", folder), LINKS, SLOTS, "x")
    assert found == Sync("frames", "exact", 0, 4)


@pytest.mark.parametrize(
    ("name", "section", "words"),
    [
        ("code:Fuse", {"lead": "frame"}, r"x: sync.lead: no such input; found frame; .*did you mean frames\?"),
        ("code:Plain", {"lead": "frames"}, "x: this stage takes its inputs as they come; found code:Plain"),
        ("voice", {"lead": "frames"}, "x: this stage takes its inputs as they come; found voice"),
        ("code:Fuse", {"lead": "frames", "depth": 5},
         "x: link ear.fuse has too few slots for sync.depth; found 6 slots, depth 5; "
         "allowed at least 7 slots, or a depth of 4; write slots: 7 on the link to speech"),
    ],
)  # fmt: skip
def test_sync__that_does_not_fit(folder: Path, name: str, section: dict[str, Any], words: str) -> None:
    """What is wrong, and what to write."""
    with pytest.raises(ConfigError, match=words):
        read_sync(section, kind(name, folder), LINKS, SLOTS, "x")


def test_graph__has_it_checked(folder: Path) -> None:
    """A stage of the graph carries it."""
    fuse = {"kind": "code:Fuse", "sync": {"lead": "frames", "policy": "nearest", "tolerance": "50ms", "depth": 2}}
    pipeline = {
        "stages": {"eye": {"kind": "code:Eye"}, "fuse": fuse},
        "links": [{"from": "eye.frames", "to": "fuse.frames"}],
    }

    node = Graph.of(pipeline, "x", {}, folder).node("fuse")
    assert node.sync == Sync("frames", "nearest", 50_000_000, 2)
    fuse["sync"]["depth"] = 60  # type: ignore[index]
    with pytest.raises(ConfigError, match=r"x: pipeline.stages.fuse: link .* has too few slots"):
        Graph.of(pipeline, "x", {}, folder)
