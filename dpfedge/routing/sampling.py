# SPDX-License-Identifier: Apache-2.0
"""Samples of devices, taken every 50 ms and told to a router: what asks a backend in, changes of the table out.

Each instance has a thread of its own: a driver that hangs holds up nobody else, and its instance goes out for want of
samples. It judges nothing; `health.py` does.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self

from dpfedge.backend.api import Device, Health
from dpfedge.errors import BackendError, DpfError, UsageError
from dpfedge.hardware.source.aer import read_errors
from dpfedge.hardware.source.root import Root
from dpfedge.plugin.border import Border
from dpfedge.routing.health import COUNT_MOST, PERIOD_MS, STALE_MS, Sample
from dpfedge.routing.router import Router

__all__ = ["Sampler", "Source", "of_device"]

Source = Callable[[], Sample]
"""Looks at a device once; may raise DpfError or OSError, which is no sample."""

_END_S = STALE_MS / 1000
_PUBLISH_S = 1.0
_EXPIRY_S = STALE_MS / 4000  # a device whose driver hangs is out after 1.25 s at most


class Knows(Protocol):
    """A backend, as far as it is asked here."""

    def health(self, device: Device) -> Health:
        """The device's state now."""


def of_device(backend: Knows, device: Device, root: Root | None = None, pci: Sequence[str] = ()) -> Source:
    """What its backend says of a device, with the errors since the last look.

    Those the backend counts (ECC, XIDs), and those the kernel counts (PCIe) at the addresses `pci`, the device's and
    its bridge's: either end of a link may be the one that tells.
    """
    place, totals = root or Root(), _Totals()

    def look() -> Sample:
        reasons: list[str] = []
        with Border(reasons.append):  # a defect takes its device out, not the thread that would see it come back
            return sample(backend.health(device))
        raise BackendError(reasons[0])

    def sample(told: Health) -> Sample:
        corrected = totals.rise("ecc corrected", told.ecc_corrected)
        fatal = totals.rise("ecc uncorrected", told.ecc_uncorrected) + totals.rise("faults", told.faults)
        for address in pci:
            if (now := read_errors(place, address)) is not None:
                corrected += totals.rise(f"{address} corrected", now.corrected)
                corrected += totals.rise(f"{address} nonfatal", now.nonfatal)
                fatal += totals.rise(f"{address} fatal", now.fatal)
        return Sample(told.utilisation, told.free_memory, told.temperature_c, told.throttled, corrected, fatal)

    return look


class _Totals:
    """Counters that run for ever, as what they rose by since the look before; the first look counts nothing."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def rise(self, name: str, now: int) -> int:
        """0 for one that went back: its driver was loaded anew."""
        before, self._last[name] = self._last.get(name, now), now
        return min(max(0, now - before), COUNT_MOST)


class Sampler:
    """Samples instances of a router until it is closed; `problems` says what the last look of each failed with."""

    def __init__(self, router: Router, sources: Mapping[str, Source], period_ms: int = PERIOD_MS) -> None:
        """Begins at once. `sources`: instance name → what looks at its device."""
        self.problems: dict[str, str] = {}
        self._names = tuple(sources)
        self._router, self._period = router, period_ms / 1000
        self._publish_at = 0.0
        loops = [(name, lambda name=name, source=source: self._look(name, source)) for name, source in sources.items()]
        each = [(f"sample {name}", do, self._period) for name, do in loops]
        self._gates: list[threading.Lock] = []  # one for each thread, held until the end: to wait at it makes nothing
        self._threads = [
            threading.Thread(target=self._every, args=(do, period, self._gate()), name=name, daemon=True)
            for name, do, period in [*each, ("sample expiry", self._expire, _EXPIRY_S)]
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Sample no more; waits a second for looks under way, and leaves one that hangs to itself."""
        gates, self._gates = self._gates, []
        for gate in gates:
            gate.release()
        until = time.monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _gate(self) -> threading.Lock:
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        return gate

    def _every(self, do: Callable[[], None], period: float, gate: threading.Lock) -> None:
        due = time.monotonic()
        while not gate.acquire(timeout=max(0.0, due - time.monotonic())):
            do()
            due = max(due + period, time.monotonic())  # late looks are not made up for

    def _look(self, name: str, source: Source) -> None:
        try:
            seen = source()
            if self._gates:  # of a look that hung until after the end nobody knows when it saw what it says
                self._router.sample(name, seen)
                self.problems.pop(name, None)
        except (DpfError, OSError) as error:
            self.problems[name] = str(error)  # of an instance that left, or a device that does not answer: it expires

    def _expire(self) -> None:
        for name in self._names:  # also one whose first look hangs
            with contextlib.suppress(UsageError):  # it left
                self._router.watch(name)
        now = time.monotonic()
        if not self._router.expire() and now >= self._publish_at:
            self._router.publish()  # the health that samples told since the last change
            self._publish_at = now + _PUBLISH_S
