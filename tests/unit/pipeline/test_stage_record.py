# SPDX-License-Identifier: Apache-2.0
"""A stage's record on its way to its process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from dpfedge.pipeline.stage_record import StageRecord, Wiring


def test_record__survives_a_message() -> None:
    """Everything of it, and a default where nothing was said."""
    wiring = Wiring({"a.b": "in"}, {"out": "b.c"}, frozenset({"out"}), frozenset({"in", "back"}))
    sync = {"lead": "in", "policy": "nearest", "tolerance_ns": 5, "depth": 2}
    for one in (
        StageRecord("b", "mine:Stage", "m", {"rate": [1, {"x": None}]}, wiring, sync, 7),
        StageRecord("b", "llm"),
    ):
        told: Any = json.loads(json.dumps(one.as_map()))
        assert StageRecord.of_map(told) == one


def test_parent_of_stages__imports_no_graph_and_no_stage() -> None:
    """It is ready sooner, and what a stage's code starts when it is imported starts in the stage's own process."""
    code = (
        "import sys, dpfedge.pipeline.zygote\n"
        "graph = {f'dpfedge.pipeline.{name}' for name in ('graph', 'links', 'ladder', 'section', 'supervisor')}\n"
        "stages = {f'dpfedge.stage.{name}' for name in ('decoder', 'encoder', 'llm', 'voice', 'camera')}\n"
        "others = {'yaml', 'jinja2', 'tempfile', 'asyncio', 'dpfedge.hardware'}\n"
        "sys.exit(str(sorted((others | graph | stages) & set(sys.modules)) or ''))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""
