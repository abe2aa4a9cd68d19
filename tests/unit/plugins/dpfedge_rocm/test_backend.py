# SPDX-License-Identifier: Apache-2.0
"""The rocm backend as far as no GPU is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from dpfedge_rocm import RocmBackend, dpfedge_register_backends
from onnx import TensorProto, helper

from dpfedge.backend.api import LowerRequest, missing, sealing
from dpfedge.errors import BackendError, Unsupported
from dpfedge.testing.models import affine

BACKEND = RocmBackend()
MACHINES = Path(__file__).parents[3] / "fixtures/machines"


def request(model: onnx.ModelProto, arch: str = "gfx942") -> LowerRequest:
    """To lower a model for a target."""
    return LowerRequest("g", model.SerializeToString(), arch, frozenset())


def test_register__one_whole_backend() -> None:
    """It offers itself, and can seal."""
    offered: list[Any] = []
    dpfedge_register_backends(SimpleNamespace(add=offered.append))

    assert [(one.name, missing(one)) for one in offered] == [("rocm", ())]
    assert sealing(BACKEND) is BACKEND


def test_capabilities__promise_what_can_be_proved() -> None:
    """A program for fixed sizes; memory is copied, and nothing ends a program on its way."""
    device = BACKEND.devices(MACHINES / "mi300x")[0]
    can = BACKEND.capabilities(device)

    assert (can.dynamic_shapes, can.arena_in_place, can.seals, can.cancels, can.priorities) == (
        False, False, True, False, 1,
    )  # fmt: skip


def test_lower__gives_the_same_bytes_and_says_why() -> None:
    """Weights apart, and each place filled in."""
    first, second = (BACKEND.lower(request(affine(4))) for _ in range(2))

    assert (first.code, list(first.weights)) == (second.code, list(second.weights))
    assert [choice for choice, _ in first.decisions] == ["optimiser=ENABLE_BASIC", "program=migraphx"]
    places = dict.fromkeys(first.weights, ("w", 0, 4))
    assert onnx.ModelProto.FromString(BACKEND.finish(first, places)).graph.input[0].name == "x"
    if first.weights:
        with pytest.raises(BackendError):
            BACKEND.finish(first, {})


@pytest.mark.parametrize("arch", ["sm_90", "gfx", "gfx942 ", "x86-64-v3", ""])
def test_lower__for_something_else(arch: str) -> None:
    """What no AMD GPU is called."""
    with pytest.raises(Unsupported, match="no AMD GPU is of this architecture"):
        BACKEND.lower(request(affine(4), arch))


def test_lower__names_operators_that_migraphx_lacks() -> None:
    """At compile time, with how many there are."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [])
    graph = helper.make_graph([helper.make_node("Det", ["x"], ["y"])], "g", [value], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)

    with pytest.raises(Unsupported, match=r"graph g: MIGraphX has no such operators.*found 1×Det"):
        BACKEND.lower(request(model))


def test_identity__is_of_part_target_and_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A seal of an MI300X is none of an MI325X's, nor of another partition mode's, nor of another ROCm's."""
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    machines = ("mi300x", "mi325x", "mi300x-cpx", "mi250")
    found = {name: BACKEND.identity(BACKEND.devices(MACHINES / name)[0]) for name in machines}
    (tmp_path / ".info").mkdir()
    (tmp_path / ".info/version").write_text("7.0.2\n")
    again = BACKEND.identity(BACKEND.devices(MACHINES / "mi300x")[0])

    assert len({str(one) for one in (*found.values(), again)}) == 5
    assert found["mi300x"].driver == "amdgpu 6.10.5"
    assert set(found["mi300x"].libraries) == {"rocm", "migraphx", "onnxruntime", "dpfedge-rocm"}


def test_health__of_a_gpu_that_is_not_here() -> None:
    """Named by its address."""
    device = BACKEND.devices(MACHINES / "mi300x")[0]
    gone = replace(device, facts={**device.facts, "pci": "ffff:ff:1f.7"})

    with pytest.raises(BackendError, match=r"ffff:ff:1f\.7"):
        BACKEND.health(gone)


@pytest.mark.parametrize(
    ("board", "machine", "other"), [("mi300x", "mi300x", "mi325x"), ("mi325x", "mi325x", "mi300x-cpx")]
)
def test_board__target_fits_its_machine_and_no_other(board: str, machine: str, other: str) -> None:
    """A package for one part runs on its recording, and not on the part that shares its code target."""
    from dpfedge.backend.registry import Registry
    from dpfedge.binding.whitelist import Facts, evaluate
    from dpfedge.compiler.targets import plan_targets
    from dpfedge.hardware.board import AUTO, find_board
    from dpfedge.hardware.probe import probe

    registry = Registry()
    registry.add(BACKEND)
    target = plan_targets([board], registry)[0]
    assert (target.backend, target.arch) == ("rocm", "gfx942")
    for name, fits in ((machine, True), (other, False)):
        device = BACKEND.devices(MACHINES / name)[0]
        here = find_board(AUTO, probe(MACHINES / name)).id
        facts = Facts(here, device.kind, device.arch, device.features, device.memory_bytes, device.drivers)
        assert (evaluate(target.whitelist(), facts) == ()) is fits
