# SPDX-License-Identifier: Apache-2.0
"""The checks for a machine with an AMD GPU, as far as they go without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dpfedge_reference.evaluator import evaluate
from dpfedge_rocm import RocmBackend
from dpfedge_rocm.verify import OPS

from dpfedge.backend.api import Device
from dpfedge.errors import Unsupported
from dpfedge.testing.cases import cases
from dpfedge.testing.judging import match
from dpfedge.testing.loading import lowered

Child = Callable[..., str]
MACHINES = Path(__file__).parents[3] / "fixtures/machines"
CODE = """
    from pathlib import Path
    from dpfedge.backend.api import Health
    from dpfedge.errors import BackendError
    from dpfedge_rocm import RocmBackend, verify
    backend = RocmBackend()
    device = backend.devices(Path(MACHINE))[0]
    verify.Watch.health = lambda self: Health(0.0, 1.0)
    try:
        for what, found in verify.checks(backend, device):
            print(what, found, sep=": ")
    except BackendError as error:
        print("failed:", error)
"""


def test_checks__go_as_far_as_the_machine_does(child: Child) -> None:
    """What stand-ins can show is shown; the first point that needs the provider fails by name."""
    said = child(CODE.replace("MACHINE", repr(str(MACHINES / "mi300x"))), "hip.c").splitlines()

    assert [line.partition(":")[0] for line in said] == [
        "HIP runtime", "HIP's number", "partition modes", "health", "AMD SMI", "identity", "failed",
    ]  # fmt: skip
    assert said[1] == "HIP's number: rocm:0 at 0000:05:00.0 is HIP's 0"
    assert "no MIGraphXExecutionProvider" in said[-1]


def test_script__calls_what_doctor_calls() -> None:
    """One way to verify, two ways to start it."""
    text = (Path(__file__).parents[4] / "plugins/dpfedge-rocm/verify_on_device.py").read_text()

    assert '["doctor", "--backend", "rocm", "--verify"' in text


def test_ops__are_those_that_lowering_takes() -> None:
    """For each operator and dtype of the suite: on the list, or refused by name when it is compiled."""
    device = Device("rocm:0", "rocm", "gpu.amd", "AMD Instinct MI300X", "gfx942", frozenset(), 1)
    patterns, wrong = {f"op/{op}": op for op in OPS}, []
    for case in cases():
        try:
            lowered(RocmBackend(), device, case.model(evaluate(case.model(), case.feeds)))
            taken = True
        except Unsupported:
            taken = False
        if taken is (match(patterns, f"op/{case.name}") is None):
            wrong.append(case.name)
    assert wrong == []
