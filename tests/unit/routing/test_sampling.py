# SPDX-License-Identifier: Apache-2.0
"""Sampling: what a backend says reaches the table; a device that hangs, fails or is gone holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.backend.api import Device, Health
from dpfedge.errors import BackendError
from dpfedge.hardware.source.root import Root
from dpfedge.routing.health import Rule, Sample
from dpfedge.routing.instances import Instance
from dpfedge.routing.publication import Publisher
from dpfedge.routing.router import Router
from dpfedge.routing.sampling import Sampler, of_device

DEVICE = Device("cpu:0", "made", "cpu.x86_64", "made", "x86-64", frozenset(), 1 << 30)
GOOD, FATAL = Sample(0.1, 0.9), Sample(0.1, 0.9, fatal_errors=1)


class Made:
    """A backend that says what it is told."""

    health_now = Health(0.25, 0.5, 71.5, True)

    def health(self, device: Device) -> Health:
        """The same for every device."""
        return self.health_now


def _soon(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.fixture
def router() -> Router:
    """Three instances, back after one good sample."""
    router = Router(Publisher(None, bits=8, capacity=4), rule=Rule(up_hold_ms=0))
    router.assign([Instance(name) for name in "abc"])
    return router


def _healthy(router: Router) -> str:
    return "".join(name for name, row in router.health_map().items() if row["healthy"])


def test_of_device__is_what_the_backend_says() -> None:
    """Shares, temperature, throttling."""
    assert of_device(Made(), DEVICE)() == Sample(0.25, 0.5, 71.5, True)


def test_of_device__counts_pcie_errors_since_the_last_look(tmp_path: Path) -> None:
    """Not those from before it was first looked at; a counter that went back counts nothing."""
    folder = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    folder.mkdir(parents=True)

    def count(corrected: int, fatal: int) -> None:
        (folder / "aer_dev_correctable").write_text(f"TOTAL_ERR_COR {corrected}\n")
        (folder / "aer_dev_fatal").write_text(f"TOTAL_ERR_FATAL {fatal}\n")

    count(70, 5)
    look = of_device(Made(), DEVICE, Root(tmp_path), ["0000:01:00.0", "0000:00:01.0"])
    found = []
    for corrected, fatal in ((70, 5), (73, 5), (73, 6), (0, 0)):
        count(corrected, fatal)
        sample = look()
        found.append((sample.corrected_errors, sample.fatal_errors))
    assert found == [(0, 0), (3, 0), (0, 1), (0, 0)]


def test_of_device__counts_what_the_backend_counts_since_the_last_look() -> None:
    """ECC and the driver's faults: totals in, rises out; a driver that was loaded anew begins anew."""
    backend = Made()
    look, found = of_device(backend, DEVICE), []
    for totals in ((7, 2, 1), (9, 2, 1), (9, 3, 1), (9, 3, 2), (1, 0, 0), (2, 0, 0), (1 << 40, 0, 0)):
        backend.health_now = Health(0.5, 0.5, None, False, *totals)
        sample = look()
        found.append((sample.corrected_errors, sample.fatal_errors))
    assert found == [(0, 0), (2, 0), (0, 1), (0, 1), (0, 0), (1, 0), (1 << 31, 0)]


def test_sampler__takes_out_and_back(router: Router) -> None:
    """As the samples say, without anybody asking."""
    now = {"a": GOOD, "b": GOOD}
    with Sampler(router, {"a": lambda: now["a"], "b": lambda: now["b"]}, period_ms=5):
        now["b"] = FATAL
        _soon(lambda: _healthy(router) == "ac")
        now["b"] = GOOD
        _soon(lambda: _healthy(router) == "abc")
    assert router.published.digest() == router.table.digest()


def test_sampler__a_driver_that_hangs_holds_up_nobody(router: Router) -> None:
    """Its instance goes out for want of samples; the others' samples go on."""
    released, now = threading.Event(), {"b": GOOD}

    def hang() -> Sample:
        released.wait(60)
        return GOOD

    sampler = Sampler(router, {"a": hang, "b": lambda: now["b"]}, period_ms=5)
    _soon(lambda: _healthy(router) == "bc")
    now["b"] = FATAL
    _soon(lambda: _healthy(router) == "c")
    released.set()
    sampler.close()


def test_sampler__a_source_that_fails_is_told(router: Router) -> None:
    """The reason is kept while it lasts; who left is no trouble."""
    answers: list[Sample | Exception] = [GOOD, BackendError("the device does not answer", where="cuda:0")]

    def ask() -> Sample:
        answer = answers[min(len(answers) - 1, 0)]
        if isinstance(answer, Exception):
            raise answer
        return answer

    with Sampler(router, {"a": ask, "gone": lambda: GOOD}, period_ms=5) as sampler:
        _soon(lambda: router.health_map()["a"]["health"] != 1.0)
        answers.pop(0)
        _soon(lambda: sampler.problems.get("a") == "cuda:0: the device does not answer")
        assert "no instance has this name" in sampler.problems["gone"]
        _soon(lambda: _healthy(router) == "bc")
        answers[0] = GOOD
        _soon(lambda: _healthy(router) == "abc" and "a" not in sampler.problems)


def test_of_device__a_plugin_with_a_defect(router: Router) -> None:
    """Whatever it raises: its device goes out, its thread goes on, and sees it come back."""

    class Defect(Made):
        broken = "it raises"

        def health(self, device: Device) -> Health:
            if self.broken == "it raises":
                return self.absent  # type: ignore[attr-defined, no-any-return]
            return None if self.broken else Health(0.1, 0.9)  # type: ignore[return-value]

    backend = Defect()
    with Sampler(router, {"a": of_device(backend, DEVICE)}, period_ms=5) as sampler:
        _soon(lambda: _healthy(router) == "bc")
        assert "AttributeError: 'Defect' object has no attribute 'absent'" in sampler.problems["a"]
        backend.broken = "it tells nothing"
        _soon(lambda: "AttributeError: 'NoneType' object has no attribute" in sampler.problems["a"])
        backend.broken = ""
        _soon(lambda: _healthy(router) == "abc" and not sampler.problems)


def test_sampler__publishes_what_was_seen_last(router: Router) -> None:
    """A look that changes no owner is in the published health by the next publication."""
    now = [0.5]
    with Sampler(router, {"a": lambda: Sample(0.0, now[0])}, period_ms=5):
        _soon(lambda: router.published.health_map()["a"]["health"] == 0.8)
        now[0] = 1.0
        _soon(lambda: router.published.health_map()["a"]["health"] == 1.0)


def test_sampler__ends_at_once() -> None:
    """Also one whose threads wait for their next look in a minute, and a second time."""
    router = Router(Publisher(None, bits=8, capacity=4))
    router.assign([Instance("a")])
    sampler = Sampler(router, {"a": lambda: GOOD}, period_ms=60_000)
    sampler.close()
    sampler.close()
    assert not any(thread.is_alive() for thread in sampler._threads)


def test_sampler__a_look_that_ends_after_its_end_is_not_taken(router: Router) -> None:
    """It may be of any time."""
    released, looking = threading.Event(), threading.Event()

    def hang() -> Sample:
        looking.set()
        released.wait(60)
        return FATAL

    sampler = Sampler(router, {"a": hang}, period_ms=5)
    assert looking.wait(20)
    sampler.close()
    router.sample("a", GOOD)
    before = router.health_map()["a"]
    released.set()
    for thread in sampler._threads:
        thread.join(20)
    assert router.health_map()["a"] == before
