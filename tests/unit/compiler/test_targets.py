# SPDX-License-Identifier: Apache-2.0
"""Which targets a list of boards needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.backend.registry import Registry
from dpfedge.compiler.targets import TargetPlan, plan_targets
from dpfedge.errors import BoardError


def test_plan_targets__host() -> None:
    """The host's target asks for this CPU's level, not for a board."""
    (plan,) = plan_targets(["host"], Registry())
    facts = cpu_facts(Path("/"))

    assert plan.boards == ()
    assert plan.whitelist()[:3] == ["and", ["class", f"cpu.{facts.arch}"], ["arch", facts.level]]


def test_plan_targets__grouped() -> None:
    """Boards with the same CPU level share a target; an unused accelerator is a decision with its reason."""
    plans = plan_targets(["orin", "rk3588", "orin-nx", "host", "orin"], Registry())

    names = ["orin", "orin-nx", "rk3588"]
    assert [plan.boards for plan in plans] == [tuple(names), ()]
    assert plans[0].whitelist() == ["and", ["board", *names], ["class", "cpu.aarch64"], ["arch", "armv8.2-a"]]
    assert ("board rk3588: gpu unused", "no installed plugin lowers for opencl") in plans[0].decisions


def test_plan_targets__same_for_any_order() -> None:
    """The order of boards on the command line does not change the package."""
    boards = ["h100", "rk3588", "host", "orin"]

    assert plan_targets(boards, Registry()) == plan_targets(boards[::-1], Registry())


def test_plan_targets__unknown_board() -> None:
    """An unknown board is an error of the boards' room."""
    with pytest.raises(BoardError, match="rk3588"):
        plan_targets(["rk3558"], Registry())


def test_whitelist__exact_level() -> None:
    """Graphs in blocks as wide as AVX2's vectors are kept away from CPUs with AVX-512, and only those."""
    plan = TargetPlan("t", "cpu", "cpu.x86_64", "x86-64-v3", frozenset({"vnni"}), (), ())

    assert plan.whitelist(exact=True)[2:4] == [["arch", "x86-64-v3"], ["not", ["arch", "x86-64-v4"]]]
    assert ["not", ["arch", "x86-64-v4"]] not in plan.whitelist()
    assert len(replace(plan, arch="x86-64-v4").whitelist(exact=True)) == 4
