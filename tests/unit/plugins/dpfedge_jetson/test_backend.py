# SPDX-License-Identifier: Apache-2.0
"""The jetson backend as far as no Jetson is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dpfedge_jetson import JetsonBackend, dpfedge_register_backends

from dpfedge.backend.api import missing, sealing
from dpfedge.errors import Unavailable

BACKEND = JetsonBackend()
MACHINES = Path(__file__).parents[3] / "fixtures/machines"


def test_register__one_whole_backend() -> None:
    """It offers itself, and can seal."""
    offered: list[Any] = []
    dpfedge_register_backends(SimpleNamespace(add=offered.append))

    assert [(one.name, missing(one)) for one in offered] == [("jetson", ())]
    assert sealing(BACKEND) is BACKEND


def test_capabilities__of_the_gpu_and_of_a_dla() -> None:
    """A DLA has fixed sizes, floats and one queue; both use links in place."""
    gpu, dla, _ = BACKEND.devices(MACHINES / "orin-agx")
    of_gpu, of_dla = BACKEND.capabilities(gpu), BACKEND.capabilities(dla)

    assert (of_gpu.dynamic_shapes, of_gpu.priorities, of_gpu.cancels) == (True, 2, True)
    assert (of_dla.dynamic_shapes, of_dla.priorities, of_dla.cancels) == (False, 1, False)
    assert of_dla.dtypes == {"f32", "f16"}
    assert of_gpu.arena_in_place
    assert of_dla.arena_in_place


def test_identity__is_of_device_core_and_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine of one DLA, module, L4T or TensorRT is none of another."""
    first, second = BACKEND.devices(MACHINES / "orin-agx")[1:]
    nx, thor = (BACKEND.devices(MACHINES / name)[0] for name in ("orin-nx", "thor"))
    newer = replace(first, drivers={**first.drivers, "l4t": "36.5.0"})
    found = [BACKEND.identity(one) for one in (first, second, nx, thor, newer)]
    monkeypatch.setattr("dpfedge_jetson.versions.libraries", lambda: {"tensorrt": "10.7.0"})
    found.append(BACKEND.identity(first))

    assert len({str(one) for one in found}) == 6
    assert found[0].device["core"] == "0"
    assert found[0].driver == "jetpack 6.2 l4t 36.4.3"
    assert all(isinstance(text, str) for one in found for text in one.device.values())


def test_board_files__name_what_the_backend_finds() -> None:
    """Targets of boards demand their devices' features and architecture."""
    from dpfedge.hardware.board import load_board

    for board, machine in (("orin", "orin-agx"), ("orin-nx", "orin-nx"), ("orin-nano", "orin-nano"), ("thor", "thor")):
        found = {one.kind: one for one in BACKEND.devices(MACHINES / machine)}
        for wanted in load_board(board).devices:
            if "jetson" in wanted.backends:
                assert found[wanted.kind].arch == wanted.arch, board
                assert wanted.features <= found[wanted.kind].features, board


@pytest.mark.parametrize("board", ["orin", "orin-nx", "orin-nano", "thor"])
def test_board__target_fits_its_recorded_machine(board: str) -> None:
    """A package for a board is bound to the chip's GPU, whatever carrier it sits on."""
    from dpfedge.backend.registry import Registry
    from dpfedge.binding.whitelist import Facts, evaluate
    from dpfedge.compiler.targets import plan_targets
    from dpfedge.hardware.board import AUTO, find_board
    from dpfedge.hardware.probe import probe

    machine = MACHINES / {"orin": "orin-agx"}.get(board, board)
    registry = Registry()
    registry.add(BACKEND)
    target = plan_targets([board], registry)[0]
    device = BACKEND.devices(machine)[0]
    here = find_board(AUTO, probe(machine)).id
    facts = Facts(here, device.kind, device.arch, device.features, device.memory_bytes, device.drivers)

    assert (here, target.backend, target.arch) == (board, "jetson", device.arch)
    assert evaluate(target.whitelist(), facts) == ()


def test_health__errors_name_this_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML is asked by what backend cuda has for it, and whoever reads the error has a Jetson."""

    def refused(device: object) -> None:
        raise Unavailable("the GPU fell off the bus", where="backend cuda")

    backend = JetsonBackend()
    monkeypatch.setitem(vars(backend), "_watch", SimpleNamespace(health=refused))
    with pytest.raises(Unavailable, match=r"^backend jetson: the GPU fell off the bus"):
        backend.health(SimpleNamespace())  # type: ignore[arg-type]
