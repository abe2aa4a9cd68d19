# SPDX-License-Identifier: Apache-2.0
"""A graph as lines."""

from __future__ import annotations

from pathlib import Path

from dpfedge.cli.graph_view import graph_lines, graph_record
from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.plan import PipelineFile

EXAMPLE = Path(__file__).parents[3] / "examples" / "two-stages" / "pipeline.yaml"


def _graph() -> Graph:
    file = PipelineFile.load(EXAMPLE)
    return Graph.of(file.section, "x", folder=EXAMPLE.parent)


def test_lines__stages_ports_and_links() -> None:
    """Everything that was written, and what follows from it."""
    lines = list(graph_lines(_graph()))

    assert lines[:5] == [
        "stages (first to last):", "  loudness: stages:Loudness", "    in  samples: f32[n 1..16000]",
        "    out level: f32[1]", "  alarm: stages:Alarm",
    ]  # fmt: skip
    assert any(line.split() == ["loudness.level", "→", "alarm.level", "8", "x", "4", "block"] for line in lines)
    assert lines[-1].endswith("MiB together")


def test_record__for_programs() -> None:
    """Stable keys."""
    record = graph_record(_graph())

    assert [stage["name"] for stage in record["stages"]] == ["loudness", "alarm"]
    [link] = [link for link in record["links"] if link["name"] == "loudness.alarm"]
    assert link == {
        "name": "loudness.alarm", "from": "loudness", "to": ["alarm"], "slots": 8, "slot_bytes": 4, "full": "block",
    }  # fmt: skip
