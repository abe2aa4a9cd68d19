# SPDX-License-Identifier: Apache-2.0
"""Which targets a list of boards needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.backend.registry import Registry
from dpfedge.compiler.targets import plan_targets
from dpfedge.errors import BoardError


def test_plan_targets__host() -> None:
    """The host's target asks for this CPU's level, not for a board."""
    (plan,) = plan_targets(["host"], Registry())
    facts = cpu_facts(Path("/"))

    assert plan.boards == ()
    assert plan.whitelist[:3] == ["and", ["class", f"cpu.{facts.arch}"], ["arch", facts.level]]


def test_plan_targets__grouped() -> None:
    """Boards with the same CPU level share a target; an unused accelerator is a decision with its reason."""
    plans = plan_targets(["orin", "rk3588", "orin-nx", "host", "orin"], Registry())

    names = ["orin", "orin-nx", "rk3588"]
    assert [plan.boards for plan in plans] == [tuple(names), ()]
    assert plans[0].whitelist == ["and", ["board", *names], ["class", "cpu.aarch64"], ["arch", "armv8.2-a"]]
    assert ("board rk3588: gpu unused", "no installed plugin lowers for opencl") in plans[0].decisions


def test_plan_targets__same_for_any_order() -> None:
    """The order of boards on the command line does not change the package."""
    boards = ["h100", "rk3588", "host", "orin"]

    assert plan_targets(boards, Registry()) == plan_targets(boards[::-1], Registry())


def test_plan_targets__unknown_board() -> None:
    """An unknown board is an error of the boards' room."""
    with pytest.raises(BoardError, match="rk3588"):
        plan_targets(["rk3558"], Registry())
