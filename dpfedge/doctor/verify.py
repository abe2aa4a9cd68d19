# SPDX-License-Identifier: Apache-2.0
"""A backend proved on the machine that has its device: a backend's name in; steps, each passed, failed or skipped, out.

The suite for backends, a chain of models over one arena, what the plugin looks at itself (its module `verify`), a bench
and, with a package, that package's bench, which is a whole pipeline. It fixes nothing, and fails where a device is
missing: nothing is proved on another one.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from dpfedge.backend.api import Backend, Device
from dpfedge.backend.registry import Registry
from dpfedge.errors import Unavailable, UsageError
from dpfedge.plugin.border import Border
from dpfedge.records import dataclass

__all__ = ["Step", "lists", "main", "report", "verify"]

_SUITE_S = 3600
_BENCH_S = 1800
_RUNS = 200
_RUNS_S = 3.0
_NAMED = 20
_SAID = 1000  # letters of a failure
_TEST = """from dpfedge.backend.registry import Registry
from dpfedge.doctor.verify import lists
from dpfedge.testing.backend_suite import BackendSuite


class TestOnDevice(BackendSuite):
    backend = Registry.load().get({name!r})
    device_id = {device!r}
    ops, unsupported, expected_failures = lists(backend)
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was tried."""

    name: str
    state: str
    """`passed`, `failed` or `skipped`."""
    found: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.state:7} {self.name}: {self.found} ({self.seconds:.1f} s)"


@dataclass(frozen=True, slots=True)
class _Asked:
    backend: Backend
    device: Device
    package: str | None
    board: str
    only: str
    """pytest's -k, for a part of the suite."""


def verify(
    registry: Registry, name: str, *, package: str | None = None, board: str = "auto", only: str = ""
) -> Iterator[Step]:
    """Every step in turn, as it ends. A backend without a device is one failed step; where a graph cannot be loaded for
    what the machine lacks, the rest is not tried."""
    if sys.flags.optimize:  # what the suite and the plugin look at is asserted: nothing would ever fail
        found, remedy = "a Python that leaves them out", "run it without -O and PYTHONOPTIMIZE"
        raise UsageError("a backend is proved by assertions", where="--verify", found=found, remedy=remedy)
    devices: list[Device] = []
    step = _tried("devices", lambda: _found(registry, name, devices))
    yield step
    if step.state == "failed":
        return
    asked = _Asked(registry.get(name), devices[0], package, board, only)
    gone: list[Unavailable] = []
    yield _tried("health", lambda: str(asked.backend.health(asked.device)))
    yield _tried("one graph", lambda: _first(asked, gone))
    if gone:  # a driver that hangs would cost its bound at each test of the suite
        return
    steps: list[tuple[str, Callable[[_Asked], str]]] = [
        ("suite for backends", _suite),
        ("three models over one arena", _chained),
        ("bench of runs", _bench),
    ]
    for title, act in steps:
        yield _tried(title, partial(act, asked))
    yield from _own(asked)
    if package is None:
        remedy = f"dpfedge compile … --board {board if board != 'auto' else 'BOARD'}, then --package FILE"
        yield Step("whole pipeline", "skipped", f"no package was given; {remedy}", 0.0)
    else:
        yield _tried("whole pipeline", lambda: _pipeline(asked))


def _tried(title: str, act: Callable[[], str]) -> Step:
    """Whatever a backend raises is what its step found."""
    begun, said = time.monotonic(), list[str]()
    with Border(said.append):
        return Step(title, "passed", act(), time.monotonic() - begun)
    return Step(title, "failed", said[0], time.monotonic() - begun)


def _first(asked: _Asked, gone: list[Unavailable]) -> str:
    """A small graph, loaded and run; what the machine lacks for that is put into `gone`, too."""
    from dpfedge.testing.calls import same
    from dpfedge.testing.loading import load
    from dpfedge.testing.models import affine, right_affine, rows

    try:
        executable = load(asked.backend, asked.device, affine(2))
        same(executable.run({"x": rows(2)}), right_affine(rows(2)))
        executable.close()
    except Unavailable as error:
        gone.append(error)
        raise
    return "right"


def _found(registry: Registry, name: str, devices: list[Device]) -> str:
    """Fills `devices`; Unavailable without one."""
    devices += registry.get(name).devices(Path("/"))
    if not devices:
        raise Unavailable("it finds no device here", where=f"backend {name}")
    return ", ".join(f"{one.id}: {one.name} ({one.arch})" for one in devices)


def _module(backend: Backend) -> ModuleType | None:
    """The module `verify` of the backend's plugin, if it has one."""
    name = f"{type(backend).__module__.partition('.')[0]}.verify"
    return importlib.import_module(name) if find_spec(name) is not None else None


def lists(backend: Backend) -> tuple[Sequence[str], Mapping[str, str], Mapping[str, str]]:
    """What of the suite the plugin says it has (`OPS`), never will have (`UNSUPPORTED`) and is off (`EXPECTED`)."""
    own = _module(backend)
    return getattr(own, "OPS", ("*",)), getattr(own, "UNSUPPORTED", {}), getattr(own, "EXPECTED", {})


def _suite(asked: _Asked) -> str:
    for needed in ("pytest", "onnx", "dpfedge_reference"):
        if find_spec(needed) is None:
            raise ImportError(f"the suite needs {needed}: pip install 'dpfedge[testing]' dpfedge-reference")
    with tempfile.TemporaryDirectory(prefix="dpfedge-verify-") as folder:
        test, results = Path(folder, "test_on_device.py"), Path(folder, "results.xml")
        test.write_text(_TEST.format(name=asked.backend.name, device=asked.device.id), encoding="utf-8")
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", folder, "-c", os.devnull, f"--junitxml={results}"]
        command = [sys.executable, "-m", "pytest", *options, *(["-k", asked.only] if asked.only else []), str(test)]
        paths = os.pathsep.join(path for path in sys.path if path)
        environ = {**os.environ, "PYTHONPATH": paths}
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=_SUITE_S)
        if not results.exists():
            raise AssertionError((done.stdout + done.stderr).strip()[-2000:])
        try:
            counts, wrong, first = _counted(results)
        except xml.etree.ElementTree.ParseError as error:
            raise AssertionError(f"the suite's process was ended while it wrote its results: {error}") from error
    assert not wrong, f"{counts}; failed: {', '.join(wrong[:_NAMED])}{' …' * (len(wrong) > _NAMED)}; the first: {first}"
    assert done.returncode == 0, f"{counts}; pytest ended with {done.returncode}"
    return counts


def _counted(results: Path) -> tuple[str, list[str], str]:
    """How the tests of a JUnit file ended, the names of those that failed, and what the first of them said."""
    states: dict[str, int] = {}
    wrong, first = [], ""
    for case in xml.etree.ElementTree.parse(results).iter("testcase"):
        skipped = case.find("skipped")
        bad = next((one for one in case if one.tag in ("failure", "error")), None)
        known = skipped is not None and "xfail" in (skipped.get("type") or "")
        good = "expected failures" if known else "passed" if skipped is None else "skipped"
        state = good if bad is None else "failed"
        states[state] = states.get(state, 0) + 1
        if bad is not None:
            first = first or str(bad.get("message")).strip()[:_SAID]
            wrong.append(str(case.get("name")))
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())), wrong, first


def _chained(asked: _Asked) -> str:
    """Three models, each reading from a link the slot that the one before wrote into."""
    from dpfedge.testing.calls import same, slots
    from dpfedge.testing.loading import load
    from dpfedge.testing.models import chain, matrix, rows

    calls = [load(asked.backend, asked.device, chain(1, 2)).bind() for _ in range(3)]
    with slots(4) as places:
        for call, read, written in zip(calls, places, places[1:], strict=False):
            call.set_input("x", read)
            call.set_output("y", written)
        for seed in range(5):
            places[0][...] = rows(2, seed=seed)
            for call in calls:
                call.run()
            same({"y": places[3]}, {"y": rows(2, seed=seed) @ matrix(0) @ matrix(0) @ matrix(0)})
        copies = sum(int(getattr(call, "copies", 0)) for call in calls)
        del call, read, written
        calls.clear()
    return f"5 requests right, {copies} copies"


def _bench(asked: _Asked) -> str:
    """Median and 99th percentile of a bound run, small and large."""
    from dpfedge.testing.calls import slots
    from dpfedge.testing.loading import load
    from dpfedge.testing.models import chain, rows

    small, large = (load(asked.backend, asked.device, chain(*sizes)).bind() for sizes in ((1, 2), (16, 512, 512)))
    large.set_input("x", rows(512, 512))
    large.set_output("y", np.zeros((512, 512), np.float32))
    with slots(2) as places:
        small.set_input("x", places[0])
        small.set_output("y", places[1])
        found = {"2×64 · 64×64": _timed(small.run), "16 products of 512³": _timed(large.run)}
        del small
    return "; ".join(f"{name}: p50 {p50:.1f} µs, p99 {p99:.1f} µs" for name, (p50, p99) in found.items())


def _timed(act: Callable[[], object]) -> tuple[float, float]:
    """µs of an act after it was done a few times."""
    for _ in range(5):
        act()
    taken: list[float] = []
    while len(taken) < _RUNS and sum(taken) < _RUNS_S * 1e6:
        begun = time.perf_counter_ns()
        act()
        taken.append((time.perf_counter_ns() - begun) / 1000)
    return float(np.percentile(taken, 50)), float(np.percentile(taken, 99))


def _own(asked: _Asked) -> Iterator[Step]:
    """What the plugin's own module looks at; the first failure ends it."""
    own = _module(asked.backend)
    if own is None or not hasattr(own, "checks"):
        return
    found = iter(own.checks(asked.backend, asked.device))
    while True:
        begun, said, one = time.monotonic(), list[str](), None
        with Border(said.append):
            one = next(found, None)
        if said:
            yield Step("the plugin's own", "failed", said[0], time.monotonic() - begun)
        if one is None:
            return
        yield Step(one[0], "passed", one[1], time.monotonic() - begun)


def _pipeline(asked: _Asked) -> str:
    """A package bound to this board, its stages started, asked and measured by `dpfedge bench`."""
    bound = json.loads(_dpfedge("bind", str(asked.package), "--board", asked.board, "--json"))
    models = {target["backend"]["name"]: ", ".join(target["models"]) for target in bound["targets"]}
    elsewhere = "; ".join(f"{name}: {which}" for name, which in models.items())
    assert asked.backend.name in models, f"no model of the package is bound to this backend here, but to {elsewhere}"
    options = ("--turns", "5", "--rounds", "3", "--idle", "1")
    measured = _dpfedge("bench", str(asked.package), "--board", asked.board, *options)
    return f"{elsewhere}\n{measured.strip()}"


def _dpfedge(*command: str) -> str:
    done = subprocess.run([sys.executable, "-m", "dpfedge", *command], capture_output=True, text=True, timeout=_BENCH_S)
    assert done.returncode == 0, (done.stderr or done.stdout).strip()[-2000:]
    return done.stdout


def report(name: str, steps: Sequence[Step], *, complete: bool = True) -> dict[str, Any]:
    """What is kept of a run, for JSON: no host name, no user. One that is not `complete` is not ok."""
    return {
        "backend": name,
        "complete": complete,
        "ok": complete and all(step.state != "failed" for step in steps),
        "machine": {"arch": platform.machine(), "kernel": platform.release(), "python": platform.python_version()},
        "steps": [asdict(step) for step in steps],
    }


def _write(target: str | None, told: Mapping[str, Any]) -> None:
    if target is not None:
        Path(target).write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main(registry: Registry, name: str, target: str | None, package: str | None, board: str) -> int:
    """Verify, print each step as it ends, write the report; 0 when nothing failed, 5 without a device, else 1."""
    steps: list[Step] = []
    for step in verify(registry, name, package=package, board=board):
        print(step, flush=True)
        steps.append(step)
        _write(target, report(name, steps, complete=False))  # a driver may take this process with it
    _write(target, report(name, steps))
    if steps[0].state == "failed":
        return 5
    return int(any(step.state == "failed" for step in steps))
