# SPDX-License-Identifier: Apache-2.0
"""A bench's results as a JSON document and as tables."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from dpfedge.bench.measure import Series
from dpfedge.bench.report import SCHEMA_VERSION, document, show

EXTRA: dict[str, Any] = {
    "package": "toy",
    "board": "host",
    "copies": {"copies_per_turn": 0.0, "dropped": 0},
    "memory": {"processes": {"llm": {"rss_mb": 210.4, "pss_mb": 150.6}}, "pss_mb": 150.6},
    "idle": {"seconds": 2.0, "cores": 0.0125},
}
BASELINE = {"name": "plain script", "rows": [{"name": "x", "unit": "ms", "ours": 4.0, "theirs": 8.0, "ratio": 0.5}]}


@pytest.fixture
def result() -> dict[str, Any]:
    """One series with samples, one without."""
    return document([Series("bind", "ms", (1.0, 3.0)), Series("decode", "tokens/s", ())], EXTRA)


def shown(result: dict[str, Any]) -> str:
    out = io.StringIO()
    show(result, Console(file=out, width=160))
    return out.getvalue()


def test_document__is_plain_data_with_a_schema(result: dict[str, Any]) -> None:
    """Everything measured, and on what."""
    assert json.loads(json.dumps(result)) == result
    assert result["schema"] == SCHEMA_VERSION
    assert [row["name"] for row in result["series"]] == ["bind", "decode"]
    assert result["machine"]["cores"] >= 1
    assert result["memory"] == EXTRA["memory"]


def test_tables__show_what_was_measured(result: dict[str, Any]) -> None:
    """A series without samples has no row; memory has a sum; idleness is per cent of a core."""
    text = shown(result)

    assert "toy on board host" in text
    assert "bind" in text
    assert "decode" not in text
    assert "151" in text
    assert "per turn: 0\n" in text
    assert "idle: 1.25 % of one core over 2 s" in text
    assert "baseline" not in text


def test_tables__leave_out_percentiles_of_too_few_samples() -> None:
    """P99 of two samples is no P99."""
    few, many = Series("few", "ms", (1.0, 3.0)), Series("many", "ms", tuple(float(n) for n in range(100)))
    rows = shown(document([few, many], EXTRA)).splitlines()

    [few_row], [many_row] = ([row for row in rows if f" {name} " in row] for name in ("few", "many"))
    assert few_row.count("–") == 3
    assert "–" not in many_row


def test_baseline__is_a_table_of_its_own(result: dict[str, Any]) -> None:
    """Both sides and their ratio."""
    text = shown({**result, "baseline": BASELINE})

    assert "plain script" in text
    assert "0.50" in text
