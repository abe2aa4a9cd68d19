# SPDX-License-Identifier: Apache-2.0
"""The table of a golden run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dpfedge.cli import golden_table
from dpfedge.cli.golden_table import golden_failure, golden_lines, golden_rows
from dpfedge.package import Package

GOOD: dict[str, Any] = {
    "model": "llm", "graph": "step", "case": 0, "port": "logits", "max_abs": 0.25, "max_abs_allowed": 4.0,
    "rel_l2": 0.0271, "rel_l2_allowed": 0.12, "passed": True,
}  # fmt: skip
BAD: dict[str, Any] = {**GOOD, "case": 1, "port": "token", "max_abs": 7.0, "max_abs_allowed": None, "rel_l2": None,
                       "rel_l2_allowed": None, "passed": False}  # fmt: skip


def test_golden_rows__with_a_sidecar_only_if_it_is_vouched_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every byte of it is checked, and whoever vouches for the package does for it; one that is not used is named."""
    asked = []

    def bind(*asking: Any, **options: Any) -> Any:
        asked.append((*asking, options))
        return SimpleNamespace(stale=("seal x.dpfseal: not signed",))

    monkeypatch.setattr(golden_table, "bind_here", bind)
    monkeypatch.setattr(golden_table, "run_golden", lambda bound: ())
    package, vouch = cast(Package, "package"), print

    assert golden_rows(package, "host", vouch) == []
    assert asked == [("package", "host", {"check": "full", "vouch": vouch})]
    assert capsys.readouterr().err == "dpfedge: warning: seal x.dpfseal: not signed\n"


def test_golden_lines__table() -> None:
    """One line an output, with what is allowed; the second case is numbered."""
    head, good, bad = golden_lines([GOOD, BAD])

    assert head.split() == ["graph", "port", "max_abs", "allowed", "rel_l2", "allowed"]
    assert good.split() == ["llm.step", "logits", "0.25", "4", "0.0271", "0.12", "pass"]
    assert bad.split() == ["llm.step#1", "token", "7", "equal", "inf", "equal", "FAIL"]
    assert list(golden_lines([])) == ["no golden values for this machine"]


def test_golden_failure__names_what_failed() -> None:
    """The first four names, and how many more."""
    assert golden_failure("a.dpfbin", [GOOD]) is None
    assert golden_failure("a.dpfbin", [GOOD, BAD]) == "a.dpfbin: golden run failed on 1 of 2 outputs: llm.step: token"
    assert str(golden_failure("a.dpfbin", [BAD] * 6)).endswith("llm.step: token and 2 more")
