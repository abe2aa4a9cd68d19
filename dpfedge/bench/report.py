# SPDX-License-Identifier: Apache-2.0
"""A bench's results for people and programs: series in, a terminal table and a JSON document out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from dpfedge.bench.measure import Series, machine

__all__ = ["SCHEMA_VERSION", "document", "show"]

SCHEMA_VERSION = 1
_COLUMNS = (("P50", "p50", 1), ("P90", "p90", 5), ("P99", "p99", 20), ("σ", "sigma", 3))
"""(title, key, least samples): of fewer samples a percentile says nothing but the largest of them."""


def document(series: Sequence[Series], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON form; `schema` rises when a key changes its meaning."""
    return {"schema": SCHEMA_VERSION, "machine": machine(), "series": [one.summary() for one in series], **extra}


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print the tables."""
    on = result["machine"]
    load = " ".join(on["load_average"])
    console.print(
        f"[bold]{result['package']}[/bold] on board {result['board']}: {on['cpu']}, {on['cores']} cores, load {load}"
    )
    console.print(_series_table(result["series"]))
    console.print(_memory_table(result["memory"]))
    idle = result["idle"]
    console.print(f"copies of tensor bytes between stages per turn: {result['copies']['copies_per_turn']:g}")
    console.print(f"idle: {100 * idle['cores']:.2f} % of one core over {idle['seconds']:g} s")
    if "baseline" in result:
        console.print(_baseline_table(result["baseline"]))


def _series_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("measurement", "unit", "n", *(title for title, *_ in _COLUMNS))
    for row in rows:
        if row["n"]:
            numbers = (f"{row[key]:.4g}" if row["n"] >= least else "–" for _, key, least in _COLUMNS)
            table.add_row(row["name"], row["unit"], str(row["n"]), *numbers)
    return table


def _memory_table(memory: Mapping[str, Any]) -> Table:
    table = Table("process", "RSS MB", "PSS MB")
    for name, row in memory["processes"].items():
        table.add_row(name, f"{row['rss_mb']:.0f}", f"{row['pss_mb']:.0f}")
    table.add_row("together", "", f"{memory['pss_mb']:.0f}", style="bold")
    return table


def _baseline_table(baseline: Mapping[str, Any]) -> Table:
    table = Table("beside the baseline", "dpfedge", baseline["name"], "ratio")
    for row in baseline["rows"]:
        table.add_row(
            row["name"], f"{row['ours']:.4g} {row['unit']}", f"{row['theirs']:.4g} {row['unit']}", f"{row['ratio']:.2f}"
        )
    return table
