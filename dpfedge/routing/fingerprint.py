# SPDX-License-Identifier: Apache-2.0
"""The hardware fingerprint of this machine: the devices' records and the salt of the day in, one digest out.

`dpfedge/hardware/FINGERPRINT.md` is normative. It opens no connection: whoever asks another node sends `headers` along.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from enum import Enum
from typing import Any, Self

import cbor2

from dpfedge.errors import DpfError
from dpfedge.hardware.fingerprint import DevicePrint, Told, read_prints
from dpfedge.hardware.source.root import Root
from dpfedge.routing.salt import DailySalt, Moment, now

__all__ = ["HEADER", "REFRESH_S", "STALE_S", "Fingerprint", "Fingerprints", "Privacy", "fingerprint"]

HEADER = "X-DPF-HW-FP"
REFRESH_S = 30.0
STALE_S = 120.0
"""A fingerprint older than this is not sent: its salt may be of yesterday."""

_DOMAIN, _VERSION = "dpfedge-hw-fp", 1


class Privacy(Enum):
    """Who may recognise the machine."""

    ANONYMOUS = "anonymous"
    """Nobody, from one day to the next: everything goes through a salt that nobody has any more tomorrow."""
    PLAIN = "plain"
    """Everybody who is told: no salt, the same digest as long as the hardware is the same."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """One machine at one moment; the devices' serial numbers are hashed already."""

    digest: str
    privacy: Privacy
    devices: tuple[DevicePrint, ...]
    shared: bool = True
    """False: the salt is this process's own, so other processes of the machine have another digest."""

    @property
    def header(self) -> str:
        """The header's value."""
        return f"v{_VERSION};{self.privacy.value};sha256={self.digest}"

    def figures(self) -> dict[str, Any]:
        """As plain data, with the fields themselves: for who sits at the machine."""
        return self._told() | {"devices": [asdict(one) for one in self.devices]}

    def sent(self) -> dict[str, Any]:
        """As plain data that may leave the machine: the fields of an anonymous one stay, tomorrow they are the same."""
        return self.figures() if self.privacy is Privacy.PLAIN else self._told()

    def _told(self) -> dict[str, Any]:
        return {"header": self.header, "digest": self.digest, "privacy": self.privacy.value, "salt_shared": self.shared}


def fingerprint(
    devices: Sequence[DevicePrint], privacy: Privacy, salts: DailySalt | None = None, at: Moment | None = None
) -> Fingerprint:
    """SHA-256 over the canonical CBOR of everything; `devices` with serial numbers as they were read."""
    if privacy is Privacy.PLAIN:
        salt, day, shared = b"", None, True
    else:
        moment = at or now()
        daily = (salts or DailySalt()).get(moment)
        salt, day, shared = daily.value, daily.made.day, daily.shared
    hashed = tuple(replace(one, serial=_hashed(one.serial, salt)) for one in devices)
    document = [_DOMAIN, _VERSION, privacy.value, day, salt, [list(astuple(one)) for one in hashed]]
    digest = hashlib.sha256(cbor2.dumps(document, canonical=True)).hexdigest()
    return Fingerprint(digest, privacy, hashed, shared)


def _hashed(serial: str | None, salt: bytes) -> str | None:
    return None if serial is None else hmac.new(salt or _DOMAIN.encode(), serial.encode(), "sha256").hexdigest()


class Fingerprints:
    """The fingerprint of this machine, made anew every 30 s by one thread until it is closed."""

    def __init__(
        self, privacy: Privacy = Privacy.ANONYMOUS, *, root: Root | None = None, salts: DailySalt | None = None,
        told: Callable[[], Told] | None = None,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:  # fmt: skip
        """The first one is made at once, by that thread too. `told` asks drivers (`devices.told_facts`): once, by it.

        `clock` counts seconds, suspended ones as well.
        """
        self._ask = told
        self._told: Told | None = None
        self._privacy, self._root, self._salts, self._clock = privacy, root or Root(), salts or DailySalt(), clock
        self._made: tuple[float, Fingerprint] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._refresh, name="fingerprint", daemon=True)
        self._thread.start()

    @property
    def latest(self) -> Fingerprint | None:
        """The last one; None before the first, and when it is too old to be told."""
        made = self._made
        return made[1] if made is not None and self._clock() - made[0] < STALE_S else None

    @property
    def headers(self) -> Mapping[str, str]:
        """What goes with a request to another node: nothing is read or hashed for it."""
        latest = self.latest
        return {} if latest is None else {HEADER: latest.header}

    def make(self) -> Fingerprint:
        """Look at the machine now."""
        began = self._clock()
        if self._told is None and self._ask is not None:
            self._told = self._ask()
        made = fingerprint(read_prints(Root(self._root.path), self._told), self._privacy, self._salts)
        self._made = began, made
        return made

    def close(self) -> None:
        """Make no more; one that a driver holds up is left to itself."""
        self._ended.set()
        self._thread.join(1.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _refresh(self) -> None:
        while True:
            try:
                self.make()
            except (DpfError, OSError) as error:  # such as no descriptor left; the last one is told until it is too old
                logging.getLogger(__name__).warning("no hardware fingerprint now: %s", error)
            if self._ended.wait(REFRESH_S):
                return
