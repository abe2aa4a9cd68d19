# SPDX-License-Identifier: Apache-2.0
"""The golden run as `dpfedge verify --run` shows it: an opened package in, rows for JSON and lines of a table out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dpfedge.binding import Bound, bind_here
from dpfedge.binding.golden import run_golden
from dpfedge.cli.columns import aligned
from dpfedge.package import Package

__all__ = ["bound_here", "golden_failure", "golden_lines", "golden_rows"]


def bound_here(package: Package, board: str, vouch: Callable[[Package], object]) -> Bound:
    """`package` on this machine; BindError or BoardError where it does not fit.

    With the sidecar beside it if that is whole and `vouch` raises no SignatureError; a line on stderr says why not.
    """
    bound = bind_here(package, board, check="full", vouch=vouch)
    for stale in bound.stale:
        print(f"dpfedge: warning: {stale}", file=sys.stderr, flush=True)
    return bound


def golden_rows(package: Package, board: str, vouch: Callable[[Package], object]) -> list[dict[str, Any]]:
    """Bind `package` as `bound_here` and run its golden records; BackendError, too."""
    return [result.to_map() for result in run_golden(bound_here(package, board, vouch))]


def golden_lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A table: graph, case, port, both errors with what is allowed, verdict."""
    if not rows:
        yield "no golden values for this machine"
        return
    cells = [("graph", "port", "max_abs", "allowed", "rel_l2", "allowed", "")]
    for row in rows:
        name = f"{row['model']}.{row['graph']}" + (f"#{row['case']}" if row["case"] else "")
        exact = "equal" if row["max_abs_allowed"] is None and row["rel_l2_allowed"] is None else "any"
        errors = (
            _shown(row["max_abs"], "inf"), _shown(row["max_abs_allowed"], exact),
            _shown(row["rel_l2"], "inf"), _shown(row["rel_l2_allowed"], exact),
        )  # fmt: skip
        cells.append((name, row["port"], *errors, "pass" if row["passed"] else "FAIL"))
    yield from aligned(cells, (0, 1, 6))


def _shown(value: float | None, missing: str) -> str:
    return missing if value is None else f"{value:.3g}"


def golden_failure(path: str, rows: Sequence[dict[str, Any]]) -> str | None:
    """What failed, as one line, or None."""
    failed = [row for row in rows if not row["passed"]]
    if not failed:
        return None
    names = ", ".join(f"{row['model']}.{row['graph']}: {row['port']}" for row in failed[:4])
    more = f" and {len(failed) - 4} more" if len(failed) > 4 else ""
    return f"{path}: golden run failed on {len(failed)} of {len(rows)} outputs: {names}{more}"
