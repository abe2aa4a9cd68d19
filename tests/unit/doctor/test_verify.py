# SPDX-License-Identifier: Apache-2.0
"""Proving a backend on this machine: here the CPU's, and fake ones without a device or with a mistake."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from dpfedge_cpu import CpuBackend

from dpfedge.backend.api import Budget, Device, GraphView, Health
from dpfedge.backend.registry import Registry
from dpfedge.doctor import verify as module
from dpfedge.doctor.verify import lists, main, report, verify
from dpfedge.errors import BackendError, Unavailable, UsageError


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench of a few runs."""
    monkeypatch.setattr(module, "_RUNS", 3)


class FakeBackend(CpuBackend):
    """The CPU's under another name, with the devices it is told of."""

    name = "fake"
    found: Sequence[Device] | Exception = ()

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """Those it was told of."""
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def registry(*backends: CpuBackend) -> Registry:
    """With these."""
    one = Registry()
    for backend in backends:
        one.add(backend)
    return one


def test_verify__everything_but_a_package() -> None:
    """Device, health, a part of the suite, a chain over an arena, a bench; what was not given is skipped."""
    steps = {step.name: step for step in verify(registry(CpuBackend()), "cpu", only="contract or run__allocates")}

    states = {name: step.state for name, step in steps.items()}
    assert states == {
        "devices": "passed", "health": "passed", "one graph": "passed", "suite for backends": "passed",
        "three models over one arena": "passed", "bench of runs": "passed", "whole pipeline": "skipped",
    }, steps  # fmt: skip
    assert steps["devices"].found.startswith("cpu:0: ")
    assert steps["suite for backends"].found == "2 passed"
    assert "right, 0 copies" in steps["three models over one arena"].found
    assert "p50" in steps["bench of runs"].found
    assert "--package" in steps["whole pipeline"].found


def test_verify__without_a_device() -> None:
    """One failed step with the backend's own reason: nothing is proved on another device."""
    backend = FakeBackend()
    (step,) = verify(registry(backend), "fake")
    assert (step.state, step.found) == ("failed", "backend fake: it finds no device here")
    backend.found = Unavailable("no driver", where="backend fake")
    (step,) = verify(registry(backend), "fake")
    assert step.found == "backend fake: no driver"
    (step,) = verify(registry(), "fake")
    assert "no plugin brings this backend" in step.found


def test_verify__with_errors_of_the_backend_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What breaks the contract is a failed step, and the next is tried."""

    class Raw(FakeBackend):
        def health(self, device: Device) -> Health:
            raise KeyError("power rail")

        def load(self, graph: GraphView, device: Device, budget: Budget) -> Any:
            raise RuntimeError("native")

    backend = Raw()
    backend.found = CpuBackend().devices(Path("/"))
    monkeypatch.setattr(module, "_suite", lambda asked: "not run")
    steps = {step.name: step.found for step in verify(registry(backend), "fake") if step.state == "failed"}
    native = "RuntimeError: native"
    assert steps == {
        "health": "KeyError: 'power rail'", "one graph": native,
        "three models over one arena": native, "bench of runs": native,
    }  # fmt: skip
    backend.found = ValueError("no such file")  # type: ignore[assignment]
    (step,) = verify(registry(backend), "fake")
    assert (step.state, step.found) == ("failed", "ValueError: no such file")


def test_verify__where_nothing_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine lacks is told once: a driver that hangs would cost its bound at each of the suite's tests."""

    class Hanging(FakeBackend):
        def load(self, graph: GraphView, device: Device, budget: Budget) -> Any:
            raise Unavailable("the driver does not answer within 30 s", where="backend fake")

    backend = Hanging()
    backend.found = CpuBackend().devices(Path("/"))
    monkeypatch.setattr(module, "_suite", lambda asked: pytest.fail("the suite was run"))
    *_, step = verify(registry(backend), "fake", package="voice.dpfbin")
    assert (step.name, step.state) == ("one graph", "failed")
    assert step.found == "backend fake: the driver does not answer within 30 s"


def test_verify__without_assertions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under -O everything would pass: nothing is tried."""
    monkeypatch.setattr(module, "sys", SimpleNamespace(flags=SimpleNamespace(optimize=1)))
    with pytest.raises(UsageError, match="without -O"):
        next(iter(verify(registry(CpuBackend()), "cpu")))


def test_verify__a_suite_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which tests did, and how the others ended."""
    backend = FakeBackend()
    backend.found = CpuBackend().devices(Path("/"))
    monkeypatch.setattr(module, "_TEST", "def test_good(): pass\ndef test_bad(): assert 0\n")
    steps = {step.name: step for step in verify(registry(backend), "fake")}
    assert steps["suite for backends"].state == "failed"
    assert "1 failed, 1 passed; failed: test_bad; the first: assert 0" in steps["suite for backends"].found
    monkeypatch.setattr(module, "_TEST", "import nothing_of_this_name\n")
    steps = {step.name: step for step in verify(registry(backend), "fake")}
    assert steps["suite for backends"].state == "failed"


def test_verify__what_the_plugin_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module `verify`: lists for the suite, and checks until the first that fails."""
    own = ModuleType("fake.verify")

    def checks(backend: CpuBackend, device: Device) -> Iterator[tuple[str, str]]:
        yield "one", f"{backend.name} on {device.id}"
        raise BackendError("it fell off the bus", where="backend fake")

    own.__dict__.update(checks=checks, UNSUPPORTED={"op/*": "none"}, EXPECTED={"cache": "why"})
    monkeypatch.setattr(module, "_module", lambda backend: own)
    monkeypatch.setattr(module, "_suite", lambda asked: "not run")
    assert lists(CpuBackend()) == (("*",), {"op/*": "none"}, {"cache": "why"})
    steps = [step for step in verify(registry(CpuBackend()), "cpu", only="contract") if step.state != "skipped"]
    assert str(steps[-2]).startswith("passed  one: cpu on cpu:0 (")
    assert (steps[-1].state, steps[-1].found) == ("failed", "backend fake: it fell off the bus")


def test_module__of_a_plugin() -> None:
    """Found beside the backend's class, when there is one."""
    from dpfedge_cuda import CudaBackend

    own = module._module(CudaBackend())
    assert own is not None
    assert own.__name__ == "dpfedge_cuda.verify"
    assert module._module(CpuBackend()) is None


@pytest.mark.parametrize(
    ("bound", "code", "state"), [("cpu", 0, "passed"), ("cuda", 0, "failed"), ("cpu", 1, "failed")]
)
def test_verify__a_whole_pipeline(monkeypatch: pytest.MonkeyPatch, bound: str, code: int, state: str) -> None:
    """A package's bench, which must have run on the backend that is proved."""

    def run(command: list[str], **more: object) -> object:
        told = json.dumps({"targets": [{"backend": {"name": bound}, "models": ["vad", "llm"]}]})
        return SimpleNamespace(returncode=code, stdout=told if "bind" in command else "measured", stderr="it broke")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(module, "_suite", lambda asked: "not run")
    *_, last = verify(registry(CpuBackend()), "cpu", package="voice.dpfbin", only="contract")
    assert (last.name, last.state) == ("whole pipeline", state)
    words = {"passed": "cpu: vad, llm\nmeasured", "failed": "it broke" if code else "but to cuda: vad, llm"}
    assert words[state] in last.found


def test_report__names_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps as they ended, and the machine without its name; exit codes tell no device from a failure."""
    target = tmp_path / "report.json"
    backend = FakeBackend()
    assert main(registry(backend), "fake", str(target), None, "auto") == 5
    told = json.loads(target.read_text())
    assert told == report("fake", [module.Step(**one) for one in told["steps"]])
    assert told["ok"] is False
    assert "finds no device" in capsys.readouterr().out
    monkeypatch.setattr(module, "verify", lambda *args, **more: iter([module.Step("devices", "passed", "one", 0.1)]))
    assert main(registry(backend), "fake", None, None, "auto") == 0
    steps = [module.Step("devices", "passed", "one", 0.1), module.Step("health", "failed", "none", 0.1)]
    monkeypatch.setattr(module, "verify", lambda *args, **more: iter(steps))
    assert main(registry(backend), "fake", None, None, "auto") == 1


def test_main__keeps_what_was_found_before_the_process_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver may take it along: the report says that it is not complete, and is not ok."""
    target = tmp_path / "report.json"

    def dies(*args: object, **more: object) -> Iterator[module.Step]:
        yield module.Step("devices", "passed", "one", 0.1)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "verify", dies)
    with pytest.raises(KeyboardInterrupt):
        main(registry(), "fake", str(target), None, "auto")
    told = json.loads(target.read_text())
    assert (told["complete"], told["ok"], len(told["steps"])) == (False, False, 1)


def test_suite__needs_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said by name, with what to install."""
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    steps = {step.name: step for step in verify(registry(CpuBackend()), "cpu")}
    assert "pip install 'dpfedge[testing]' dpfedge-reference" in steps["suite for backends"].found
