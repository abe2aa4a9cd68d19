# SPDX-License-Identifier: Apache-2.0
"""Which targets a list of boards needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpfedge.backend.api import ABI
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


class Lowers:
    """A fake_plugin of some name: what is planned depends on names alone."""

    def __init__(self, name: str) -> None:
        self.name, self.version, self.abi = name, "1", ABI

    def __getattr__(self, name: str) -> object:
        return lambda *_: pytest.fail(f"planning asked a backend for {name}")


def registry_of(*names: str) -> Registry:
    """A registry with plugins of these names."""
    registry = Registry()
    for name in names:
        registry.add(Lowers(name))  # type: ignore[arg-type]
    return registry


def test_plan_targets__accelerator_first() -> None:
    """A board's accelerator has the first target, bound to the board, and the CPU's stays for those who allow it."""
    first, second = plan_targets(["rk3588"], registry_of("cpu", "opencl"))

    assert (first.backend, first.kind, first.arch) == ("opencl", "gpu.arm", "mali-g610")
    assert first.features == {"fp16", "int8_dot", "unified_memory"}
    assert first.whitelist()[1] == ["board", "rk3588"]
    assert (second.backend, second.kind) == ("cpu", "cpu.aarch64")
    assert all("unused" not in choice for choice, _ in second.decisions)


def test_plan_targets__preferred_backend_that_is_installed() -> None:
    """Of a device's backends the first with a plugin; boards whose chips are alike share it."""
    plans = plan_targets(["orin", "orin-nx"], registry_of("cpu", "cuda"))

    assert [(plan.backend, plan.arch, plan.boards) for plan in plans] == [
        ("cuda", "sm_87", ("orin", "orin-nx")), ("cpu", "armv8.2-a", ("orin", "orin-nx")),
    ]  # fmt: skip
    assert plan_targets(["orin"], registry_of("cpu", "cuda", "jetson"))[0].backend == "jetson"
    unused = [rule for choice, rule in plans[-1].decisions if choice == "board orin: dla unused"]
    assert unused == ["no installed plugin lowers for jetson"]


def test_plan_targets__board_that_is_asked_for() -> None:
    """`host-opencl` is this machine's CPU through a driver; its CPU target is the one that every host has."""
    plans = plan_targets(["host", "host-opencl"], registry_of("cpu", "opencl"))
    facts = cpu_facts(Path("/"))

    assert [(plan.backend, plan.boards) for plan in plans] == [("opencl", ("host-opencl",)), ("cpu", ())]
    assert {plan.arch for plan in plans} == {facts.level}


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


def test_plan_targets__stages_on_their_devices() -> None:
    """A device that some model is placed on has a target, others are unused; the CPU's target has them all."""
    models = {"vad": ("decoder",), "llm": ("llm",)}
    plans = plan_targets(["orin"], registry_of("cpu", "jetson"), models)

    assert [(plan.backend, plan.arch) for plan in plans] == [("jetson", "sm_87"), ("cpu", "armv8.2-a")]
    assert {model: [step.device for step in steps] for model, steps in plans[0].chains["orin"].items()} == {
        "vad": ["cpu"], "llm": ["gpu", "cpu"],
    }  # fmt: skip
    assert ("board orin: dla unused", "no model is placed on it") in plans[-1].decisions


def test_plan_targets__boards_that_place_models_alike_share_a_target() -> None:
    """Boards on one device, or on the CPU alone, are other targets: each holds the same models on all its boards."""
    models = {"vad": ("decoder",), "llm": ("llm",)}
    registry = registry_of("cpu", "rocm")
    shared = plan_targets(["mi300x", "mi325x"], registry, models)
    apart = plan_targets(["mi300x", "mi325x:gpu"], registry, models)

    assert [plan.boards for plan in shared] == [("mi300x", "mi325x")] * 2
    assert [plan.boards for plan in apart] == [("mi300x",), ("mi325x",), ("mi300x", "mi325x")]
    assert [plan.backend for plan in plan_targets(["mi300x:cpu"], registry, models)] == ["cpu"]
