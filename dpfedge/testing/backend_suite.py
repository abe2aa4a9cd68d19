# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of backends: subclass `BackendSuite`, set `backend`, and pytest runs all of it.

What is right comes from `dpfedge_reference`. Three things are told apart: a machine without the device (skipped with
the backend's reason), what the backend will never do (`unsupported`, which must raise Unsupported) and what is broken
for now (`expected_failures`, which must fail).
"""

from __future__ import annotations

import fnmatch
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dpfedge.backend.api import (
    ABI,
    Backend,
    Budget,
    Device,
    GraphView,
    LowerRequest,
    missing,
    sealing,
)
from dpfedge.errors import BackendError, RunCancelled, Unavailable, Unsupported, UsageError
from dpfedge.link import Arena, LinkSpec
from dpfedge.tensors import DTYPES
from dpfedge.testing.calls import ended_on_its_way, lasting, run_in_place, same, slot, stoppable
from dpfedge.testing.cases import Case, cases
from dpfedge.testing.judging import golden, judge, match, name_of, named
from dpfedge.testing.loading import load, lowered, sealed, view
from dpfedge.testing.measuring import difference, handles, intact, poisoned, resident_bytes, return_at_once
from dpfedge.testing.mistakes import mistakes, refusal
from dpfedge.testing.models import WIDTH, affine, chain, decaying, heavy, right_affine, rows

__all__ = ["BackendSuite"]

_SIZES = (1, 5, 2, 17, 3, 16, 1)
_CYCLES = 12
_HEAVY_MIB = 16
_SAME = 1e-4


class BackendSuite:
    """Everything a backend promises by the contract, tested on a device of this machine."""

    backend: ClassVar[Backend]
    device_id: ClassVar[str | None] = None
    """The device to test; None: the first one."""
    unsupported: ClassVar[Mapping[str, str]] = {}
    """Pattern of a test's name (`op/LSTM/*`, `cancel`, …) → why it will never work; it must raise Unsupported."""
    ops: ClassVar[Sequence[str]] = ("*",)
    """Patterns of the operators it has (`MatMul*/f32`); all others must raise Unsupported."""
    expected_failures: ClassVar[Mapping[str, str]] = {}
    """Pattern → what is broken for now; the test fails once it passes."""
    _seen: ClassVar[defaultdict[str, defaultdict[str, dict[str, str]]]] = defaultdict(lambda: defaultdict(dict))

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each operator and dtype."""
        if "case" in metafunc.fixturenames:
            found = list(cases())
            metafunc.parametrize("case", found, ids=[case.name for case in found])

    @pytest.fixture(autouse=True)
    def _expected(self, request: pytest.FixtureRequest) -> None:
        reason = match(self.expected_failures, name_of(request))
        if reason is not None:
            request.applymarker(pytest.mark.xfail(strict=True, reason=reason))

    @pytest.fixture
    def device(self) -> Device:
        """The device under test; without one the test is skipped."""
        try:
            devices = self.backend.devices(Path("/"))
        except Unavailable as error:
            pytest.skip(f"unavailable: {error}")
        wanted = [one for one in devices if self.device_id in (None, one.id)]
        if not wanted:
            what = f"finds no device {self.device_id or 'on this machine'}"
            pytest.skip(f"unavailable: backend {self.backend.name} {what}")
        return wanted[0]

    @pytest.fixture
    def judged(self, request: pytest.FixtureRequest) -> Callable[[], Any]:
        """A context for the body of a test: plain, or one in which Unsupported must be raised."""
        name = name_of(request)
        reason = match(self.unsupported, name)
        if reason is None and name.startswith("op/") and match({f"op/{op}": op for op in self.ops}, name) is None:
            reason = "not among its operators"
        return lambda: judge(reason, name)

    def test_contract__is_whole(self) -> None:
        """Name, version, number of the contract, and every method."""
        assert missing(self.backend) == ()
        assert self.backend.abi == ABI
        assert re.fullmatch(r"[a-z][a-z0-9_-]*", self.backend.name)
        assert self.backend.version

    def test_lists__name_tests_there_are(self) -> None:
        """A pattern that fits no test is misspelt, or its test is gone."""
        names = [f"op/{case.name}" for case in cases()]
        names += [named(one) for one in vars(BackendSuite) if one.startswith("test_")]
        idle = [one for one in (*self.unsupported, *self.expected_failures) if not fnmatch.filter(names, one)]
        assert not idle, f"no test is called so: {', '.join(idle)}; there are {', '.join(sorted(names))}"

    def test_devices__of_another_machine_show_nothing_of_this_one(self, tmp_path: Path) -> None:
        """An empty root is answered twice alike or refused by Unavailable, without a native library."""
        try:
            found = [self.backend.devices(tmp_path) for _ in range(2)]
        except Unavailable:
            return
        assert found[0] == found[1]
        assert all(device.backend == self.backend.name for device in found[0])
        assert all(one.kind.startswith(("cpu.", "null")) for one in found[0]), "a device without any file of it"

    def test_device__is_described(self, device: Device) -> None:
        """Ids are unique and belong to the backend; capabilities, health and identity hold what the contract says."""
        devices = self.backend.devices(Path("/"))
        can, health, seals = self.backend.capabilities(device), self.backend.health(device), sealing(self.backend)
        assert len({one.id for one in devices}) == len(devices)
        assert {one.backend for one in devices} == {self.backend.name}
        assert can.dtypes
        assert can.dtypes <= set(DTYPES)
        assert min(can.streams, can.priorities) >= 1
        assert 0 <= health.utilisation <= 1
        assert 0 <= health.free_memory <= 1
        if seals is not None:
            identity = seals.identity(device)
            assert identity == seals.identity(device)
            assert all(isinstance(text, str) for text in (*identity.device.values(), *identity.libraries.values()))

    def test_op__is_right(self, device: Device, judged: Callable[[], Any], case: Case) -> None:
        """Its answer is the reference's, and every element of the caller's memory is written."""
        wanted, seen = golden(case), self._seen[type(self).__qualname__][case.op]
        label = f"{case.line.title} {case.dtype}".strip()
        seen[label] = "failed"
        with judged():
            executable = load(self.backend, device, case.model(wanted))
            found = run_in_place(executable, case.feeds, wanted)
            for array, right in zip(found, wanted, strict=True):
                off = difference(array, right)
                assert off <= case.tolerance, f"off by {off:.2g}, allowed {case.tolerance:.2g}"
            seen[label] = "right"
            executable.close()
            return
        seen[label] = "unsupported"

    def test_table__of_operators(self) -> None:
        """Prints, for each operator, what came out of the tests before this one; see it with `pytest -s`."""
        for op, row in sorted(self._seen[type(self).__qualname__].items()):
            states = {state: [name for name, found in row.items() if found == state] for state in row.values()}
            print(f"{op:32}", "; ".join(f"{state}: {', '.join(names)}" for state, names in states.items()))

    def test_lower__gives_the_same_bytes(self, device: Device, judged: Callable[[], Any]) -> None:
        """A package is the same however often it is compiled, and every weight needs a place."""
        with judged():
            size: int | str = "n" if self.backend.capabilities(device).dynamic_shapes else 3
            first, second = (lowered(self.backend, device, affine(size)) for _ in range(2))
            assert first.code == second.code
            assert list(first.weights) == list(second.weights)
            assert view(self.backend, first, "g").code == view(self.backend, second, "g").code
            if first.weights:
                with pytest.raises(BackendError):
                    self.backend.finish(first, {})

    def test_run__allocates(self, device: Device, judged: Callable[[], Any]) -> None:
        """A plain run returns every output; a binding allocates one again that was the caller's, and lets go of it."""
        with judged():
            executable, y = load(self.backend, device, affine(3)), poisoned((3, WIDTH), np.dtype(np.float32))
            same(executable.run({"x": rows(3)}), right_affine(rows(3)))
            call = executable.bind()
            call.set_input("x", rows(3))
            call.set_output("y", y)
            call.run()
            y[...] = np.nan
            call.set_output("y", None)
            call.run()
            same({"y": call.output("y"), "z": call.output("z")}, right_affine(rows(3)))
            assert np.isnan(y).all(), "memory was written that is no longer an output's"

    def test_dynamic_shapes__need_no_second_executable(self, device: Device, judged: Callable[[], Any]) -> None:
        """One binding takes sizes up and down; where shapes are fixed, one graph for each size does."""
        with judged():
            dynamic = self.backend.capabilities(device).dynamic_shapes
            once = load(self.backend, device, affine("n")).bind() if dynamic else None
            for count in _SIZES:
                call = once or load(self.backend, device, affine(count)).bind()
                wanted = right_affine(rows(count))
                y = poisoned(wanted["y"].shape, wanted["y"].dtype)
                call.set_input("x", rows(count))
                call.set_output("y", y)
                call.run()
                same({"y": y, "z": call.output("z")}, wanted)

    def test_link__carries_over(self, device: Device, judged: Callable[[], Any]) -> None:
        """An output is the next run's input; setting that input again starts anew."""
        with judged():
            call = load(self.backend, device, decaying()).bind()
            call.set_input("x", np.ones(4, np.float32))
            call.link("next", "state")
            for _ in range(2):
                call.set_input("state", np.zeros(4, np.float32))
                for wanted in (1.0, 1.5, 1.75):
                    call.run()
                    assert np.array_equal(call.output("next"), np.full(4, wanted, np.float32))

    def test_arena__is_used_in_place(self, device: Device, judged: Callable[[], Any]) -> None:
        """Input and output lie in a link's slots; new bytes in the same slot are seen without binding again."""
        with judged():
            if not self.backend.capabilities(device).arena_in_place:
                raise Unsupported("inputs and outputs are copied", where=f"backend {self.backend.name}")
            call = load(self.backend, device, affine(2)).bind()
            size = 2 * WIDTH * 4
            links = [LinkSpec("a.b", "a", "b", 2, size), LinkSpec("b.c", "b", "c", 2, size)]
            with Arena.create(links, requests=1) as arena:
                x, y, other = (slot(arena, link) for link in ("a.b", "b.c", "b.c"))
                other[...] = 7
                call.set_input("x", x)
                call.set_output("y", y)
                for seed in range(3):
                    x[...], y[...] = rows(2, seed=seed), np.nan
                    call.run()
                    same({"y": y}, {"y": right_affine(x)["y"]})
                    assert call.output("y") is y
                    assert (other == 7).all(), "another slot was written"
                del call, x, y, other

    def test_cache__is_written_in_place(self, device: Device, judged: Callable[[], Any]) -> None:
        """An attention step reads keys and values from the memory it writes them to, as language models do."""
        (step,) = (case for case in cases() if case.name == "GroupQueryAttention-step/f32")
        wanted = golden(step)
        with judged():
            call = load(self.backend, device, step.model(wanted)).bind()
            feeds = {name: array.copy() for name, array in step.feeds.items()}
            answer = poisoned(wanted[0].shape, wanted[0].dtype)
            for name, array in feeds.items():
                call.set_input(name, array)
            found = {"out0": answer, "out1": feeds["pk"], "out2": feeds["pv"]}
            for name, array in found.items():
                call.set_output(name, array)
            call.run()
            same(found, dict(zip(found, wanted, strict=True)))

    def test_load_unload__returns_memory(self, device: Device, judged: Callable[[], Any]) -> None:
        """Loading, running and closing again and again takes no more than once; what is closed says so."""
        with judged():
            graph = view(self.backend, lowered(self.backend, device, heavy(_HEAVY_MIB)), "heavy")
            return_at_once()
            free, opened = 0.0, []
            for cycle in range(_CYCLES + 4):
                executable = self.backend.load(graph, device, Budget())
                call, x = executable.bind(), np.ones((1, 1024), np.float32)
                call.set_input("x", x)
                call.run()
                executable.close()
                executable.close()
                opened.append(handles())
                if cycle == 3:
                    before, free = resident_bytes(), self.backend.health(device).free_memory
            for act in (call.run, lambda: executable.run({"x": x}), lambda: executable.bind().run()):
                assert "heavy" in refusal(act), "a run after close: no BackendError that names the graph"
            # what others in this process open at once is no loss with each load
            assert np.median(np.diff(opened[3:])) < 1, "files or threads stay behind"
            leak = 2 * _HEAVY_MIB << 20
            now = resident_bytes()
            assert now - before < leak, f"{(now - before) >> 20} MiB"
            if not device.unified_memory:  # elsewhere other processes move this figure
                assert (free - self.backend.health(device).free_memory) * device.memory_bytes < leak

    def test_concurrent__bindings_keep_apart(self, device: Device, judged: Callable[[], Any]) -> None:
        """Four threads run one executable, each through a binding of its own."""
        with judged():
            executable = load(self.backend, device, affine(7), Budget(threads=2))

            def work(seed: int) -> None:
                call, x = executable.bind(), rows(7, seed=seed)
                y = poisoned(x.shape, x.dtype)
                call.set_input("x", x)
                call.set_output("y", y)
                for _ in range(50):
                    call.run()
                    same({"y": y, "z": call.output("z")}, right_affine(x))

            with ThreadPoolExecutor(4) as pool:
                list(pool.map(work, range(4)))

    def test_cancel__ends_a_run(self, device: Device, judged: Callable[[], Any]) -> None:
        """From another thread, on its way, for good until rearmed; another binding goes on, and answers are right."""
        with judged():
            call, y = lasting(self.backend, device)
            stop, wanted = stoppable(self.backend, device, call), y.copy()
            assert any(ended_on_its_way(call, stop, y, delay) for delay in np.linspace(0.002, 0.05, 20))
            stop.cancel()
            for _ in range(2):
                with pytest.raises(RunCancelled):
                    call.run()
            stop.rearm()
            call.run()
            assert np.array_equal(y, wanted)
            executable = load(self.backend, device, affine(2))
            one, other = executable.bind(), executable.bind()
            stoppable(self.backend, device, one).cancel()
            other.set_input("x", rows(2))
            other.run()
            same({"y": other.output("y")}, {"y": right_affine(rows(2))["y"]})

    def test_errors__name_the_graph(self, device: Device, judged: Callable[[], Any]) -> None:
        """What the caller does wrong is a BackendError with the graph's name, and the executable goes on working."""
        with judged():
            executable = load(self.backend, device, affine(2))
            kept = [poisoned((count, WIDTH), np.dtype(np.float32)) for count in (1, 4, 2)]
            for what, act in mistakes(executable, *kept).items():
                assert "affine" in refusal(act), f"{what}: no BackendError that names the graph"
            assert all(intact(array) for array in kept), "memory around an output was written"
            same(executable.run({"x": rows(2)}), right_affine(rows(2)))
            if self.backend.capabilities(device).dynamic_shapes:
                two, feeds = load(self.backend, device, decaying("n")), {"state": rows(1)[0, :5], "x": rows(1)[0, :4]}
                with pytest.raises(BackendError, match="decaying"):
                    two.run(feeds)

    def test_damaged__code_is_refused(self, device: Device, judged: Callable[[], Any]) -> None:
        """Bytes that are no graph of this backend are a BackendError, not a crash; so are those of no ONNX graph."""
        with judged():
            no_model = LowerRequest("affine", b"\x07nothing", device.arch, device.features)
            with pytest.raises(BackendError, match="affine"):
                self.backend.lower(no_model)
            good = view(self.backend, lowered(self.backend, device, affine(2)), "affine")
            code = bytes(good.code)
            for damaged in (b"", b"\x07nothing", code[: len(code) // 2], bytes(len(code))):
                bad = GraphView("affine", memoryview(damaged), good.inputs, good.outputs, good.weights)
                with pytest.raises(BackendError):
                    self.backend.load(bad, device, Budget()).run({"x": rows(2)})

    def test_priorities__all_end(self, device: Device, judged: Callable[[], Any]) -> None:
        """Work of the first and the last urgency at once: both are right; where levels differ the first ends first."""
        with pytest.raises(UsageError):
            Budget(urgency=8)
        with judged():
            urgent, patient = (load(self.backend, device, chain(16, 64), Budget(urgency=u)) for u in (0, 7))
            x = rows(64)
            wanted = patient.run({"x": x})["y"]
            started, order = threading.Event(), list[str]()

            def background() -> None:
                for _ in range(20):
                    same(patient.run({"x": x}), {"y": wanted})
                    started.set()
                order.append("patient")

            with ThreadPoolExecutor(1) as pool:
                done = pool.submit(background)
                assert started.wait(60)
                same(urgent.run({"x": x}), {"y": wanted})
                order.append("urgent")
                done.result()
            assert order == ["urgent", "patient"] or self.backend.capabilities(device).priorities == 1

    def test_seal__changes_no_bit(self, device: Device, judged: Callable[[], Any]) -> None:
        """What was built on the device is the same model: with it, results are those without it."""
        if sealing(self.backend) is None:
            pytest.skip("the backend seals nothing")
        with judged():
            x = np.ones((1, 1024), np.float32)
            graph = view(self.backend, lowered(self.backend, device, heavy(_HEAVY_MIB)), "heavy", [{"x": x}])
            wanted = self.backend.load(graph, device, Budget()).run({"x": x})["y"]
            with sealed(self.backend, device, graph) as found:
                executable = self.backend.load(found, device, Budget())
                assert executable.run({"x": x})["y"].tobytes() == wanted.tobytes()
                executable.close()

    def test_determinism__to_the_bit(self, device: Device, judged: Callable[[], Any]) -> None:
        """The same input gives the same bytes: on each run, in each binding, after loading anew."""
        with judged():
            found = set()
            for _ in range(2):
                executable = load(self.backend, device, chain(8, 33), Budget(threads=2))
                found |= {executable.run({"x": rows(33)})["y"].tobytes() for _ in range(5)}
            assert len(found) == 1
