# SPDX-License-Identifier: Apache-2.0
"""The suite finds what it is there to find: made-up backends with one fault each, run by it."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from dpfedge_reference import ReferenceBackend
from planted import Fault, Faulty, judged, suite

from dpfedge.backend.api import Array, Budget, Capabilities, Device, GraphView, Identity
from dpfedge.backend.host import HostBinding, HostExecutable
from dpfedge.errors import BackendError, Unavailable, Unsupported
from dpfedge.testing.cases import Case, cases

ADD = next(case for case in cases() if case.name == "Add/f32")


def test_op__passes_when_right() -> None:
    """The reference agrees with itself."""
    made, device = suite(Faulty(lambda binding: None))

    made.test_op__is_right(device, judged(), ADD)


def _leave_one(binding: HostBinding) -> None:
    for array in binding._fixed.values():
        array.reshape(-1)[-1:].view("u1")[...] = 0xA5


def _off(binding: HostBinding) -> None:
    for array in binding._fixed.values():
        array *= np.asarray(1.01, array.dtype)


@pytest.mark.parametrize("fault", [_leave_one, _off])
def test_op__finds_wrong_values(fault: Fault) -> None:
    """An element that was not written, and an answer that is one percent off."""
    made, device = suite(Faulty(fault))

    with pytest.raises(AssertionError, match=r"off by|inf"):
        made.test_op__is_right(device, judged(), ADD)


def test_arena__finds_a_copy() -> None:
    """A backend that keeps its own copy of the input answers for old bytes."""

    class Copying(Faulty):
        def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
            loaded = super().load(graph, device, budget)
            bind = loaded.bind

            def copying() -> HostBinding:
                call = bind()
                keep = call.set_input
                call.set_input = lambda name, array: keep(name, array.copy())  # type: ignore[method-assign]
                return call

            loaded.bind = copying  # type: ignore[method-assign]
            return loaded

    made, device = suite(Copying(lambda binding: None))
    with pytest.raises(AssertionError):
        made.test_arena__is_used_in_place(device, judged())


def test_unsupported__must_be_refused() -> None:
    """What is listed as impossible and works is a stale entry; what is refused by the right error passes."""
    made, device = suite(ReferenceBackend())

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        made.test_op__is_right(device, judged("no adder"), ADD)
    made.test_cancel__ends_a_run(device, judged("NumPy"))
    with pytest.raises(Unsupported, match="backend reference: a run cannot be ended"):
        made.test_cancel__ends_a_run(device, judged())


def test_load_unload__finds_a_leak() -> None:
    """A backend that keeps what it loaded grows by a weight each time."""
    kept: list[bytearray] = []

    class Leaking(ReferenceBackend):
        def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
            kept.append(bytearray(graph.weights["weights.suite"]))
            return super().load(graph, device, budget)

    made, device = suite(Leaking())
    with pytest.raises(AssertionError):
        made.test_load_unload__returns_memory(device, judged())


def test_concurrent__finds_shared_memory() -> None:
    """Bindings that write into one buffer of the executable answer for one another."""

    class Sharing(ReferenceBackend):
        def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
            loaded, shared = super().load(graph, device, budget), dict[str, Array]()
            inner = loaded.run

            def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
                shared.update(feeds)
                time.sleep(0.0005)
                return inner(dict(shared))

            loaded.run = run  # type: ignore[method-assign]
            return loaded

    made, device = suite(Sharing())
    with pytest.raises(AssertionError):
        made.test_concurrent__bindings_keep_apart(device, judged())


def test_determinism__finds_noise() -> None:
    """One bit that changes from run to run."""
    runs = itertools.count()

    class Noisy(ReferenceBackend):
        def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
            loaded = super().load(graph, device, budget)
            inner = loaded.run

            def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
                found = inner(feeds)
                found["y"].view("u4")[0, 0] ^= next(runs) & 1
                return found

            loaded.run = run  # type: ignore[method-assign]
            return loaded

    made, device = suite(Noisy())
    with pytest.raises(AssertionError):
        made.test_determinism__to_the_bit(device, judged())


def test_cancel__finds_one_that_is_forgotten() -> None:
    """A cancel before the run that the run does not see."""

    class Deaf(HostBinding):
        def cancel(self) -> None:
            pass

        def rearm(self) -> None:
            pass

    class Forgetting(ReferenceBackend):
        def capabilities(self, device: Device) -> Capabilities:
            return Capabilities(frozenset({"f32"}), True, True, cancels=True)

        def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
            loaded = super().load(graph, device, budget)
            loaded.bind = lambda: Deaf(loaded)  # type: ignore[method-assign]
            return loaded

    made, device = suite(Forgetting())
    with pytest.raises(AssertionError):
        made.test_cancel__ends_a_run(device, judged())


FILE = """
from pathlib import Path
from dpfedge_reference import ReferenceBackend
from dpfedge.errors import Unavailable
from dpfedge.testing.backend_suite import BackendSuite

class Gone(ReferenceBackend):
    def devices(self, sysroot):
        raise Unavailable("no driver", where="backend gone")

class TestGone(BackendSuite):
    backend = Gone()

class TestMarked(BackendSuite):
    backend = ReferenceBackend()
    unsupported = {"cancel": "NumPy", "link": "stale"}
    expected_failures = {"run": "works by now", "op/Add/f16": "works by now"}
"""


def test_suite__tells_three_things_apart(tmp_path: Path) -> None:
    """Unavailable is skipped with the reason; stale entries of either list fail; the rest passes."""
    (tmp_path / "test_made.py").write_text(FILE)
    command = [sys.executable, "-m", "pytest", "-q", "-rsf", "-p", "no:cacheprovider", "-W", "error"]
    paths = [str(path) for path in Path(__file__).parents[3].glob("plugins/dpfedge-reference")]
    chosen = ["-k", "Add or link or run or cancel", "-o", f"pythonpath={paths[0]}", str(tmp_path)]

    done = subprocess.run([*command, *chosen], cwd=tmp_path, capture_output=True, text=True)

    assert "unavailable: backend gone: no driver" in done.stdout, done.stdout + done.stderr
    failed = {line.split("::")[-1].split(" ")[0] for line in done.stdout.splitlines() if line.startswith("FAILED")}
    assert failed == {"test_link__carries_over", "test_run__allocates", "test_op__is_right[Add/f16]"}
    assert "XPASS(strict)" in done.stdout


def test_devices__that_show_another_machine() -> None:
    """A GPU that is listed for an empty root, where no file tells of one, is found out."""

    class Leaking(ReferenceBackend):
        def devices(self, sysroot: Path) -> Sequence[Device]:
            return [Device("x:0", "reference", "gpu.nvidia", "x", "sm_90", frozenset(), 1)]

    made, _ = suite(Leaking())
    with pytest.raises(AssertionError, match="without any file of it"):
        made.test_devices__of_another_machine_show_nothing_of_this_one(Path("/nonexistent"))


def test_device__that_promises_nothing_known() -> None:
    """Capabilities use dpfedge's names of dtypes."""

    class Vague(ReferenceBackend):
        def capabilities(self, device: Device) -> Capabilities:
            return Capabilities(frozenset({"float"}), True, True)

    made, device = suite(Vague())
    with pytest.raises(AssertionError):
        made.test_device__is_described(device)


def test_errors__of_another_kind() -> None:
    """A native error that was not mapped fails the suite."""

    class Raw(Faulty):
        def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
            raise RuntimeError("native")

    made, device = suite(Raw(lambda binding: None))
    with pytest.raises(RuntimeError, match="native"):
        made.test_damaged__code_is_refused(device, judged())


def test_faulty__is_what_it_says() -> None:
    """The errors these tests count on are the contract's."""
    assert issubclass(Unavailable, BackendError)
    assert isinstance(ADD, Case)


def test_lists__finds_a_misspelt_name() -> None:
    """A pattern that fits no test says nothing of the backend."""
    made, _ = suite(Faulty(lambda binding: None))
    made.test_lists__name_tests_there_are()
    type(made).unsupported = {"op/Add/f32": "right", "cancels": "misspelt", "op/Ad/*": "misspelt"}

    with pytest.raises(AssertionError, match=r"no test is called so: cancels, op/Ad/\*; there are .*, cancel,"):
        made.test_lists__name_tests_there_are()


class Forgetful(ReferenceBackend):
    """What it seals is another model."""

    compares_sealed = False

    def identity(self, device: Device) -> Identity:
        return Identity({}, {})

    def seal(self, graph: GraphView, device: Device, budget: Budget) -> Mapping[str, Sequence[Array]]:
        return {"half": [np.ones(1, np.uint8)]}

    def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
        loaded = super().load(graph, device, budget)
        if graph.sealed:
            compute = loaded._compute
            assert compute is not None
            loaded._compute = lambda feeds: [one / 2 for one in compute(feeds)]
        return loaded


def test_seal__finds_other_results() -> None:
    """With a seal, and only then."""
    made, device = suite(Forgetful())

    with pytest.raises(AssertionError):
        made.test_seal__changes_no_bit(device, judged())
    with pytest.raises(pytest.skip.Exception, match="seals nothing"):
        suite(ReferenceBackend())[0].test_seal__changes_no_bit(device, judged())
