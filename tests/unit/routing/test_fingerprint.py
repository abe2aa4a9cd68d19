# SPDX-License-Identifier: Apache-2.0
"""The digest: golden vectors, what it hides, when it changes; and the one thread that makes it."""

from __future__ import annotations

import errno
import hashlib
import json
import threading
import time
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import Unavailable
from dpfedge.hardware.fingerprint import DevicePrint, read_prints
from dpfedge.hardware.source.root import Root
from dpfedge.routing import fingerprint as module
from dpfedge.routing.fingerprint import HEADER, Fingerprints, Privacy, fingerprint
from dpfedge.routing.salt import DailySalt, Moment

CAR = DevicePrint(
    "gpu.nvidia", "made", "10de", "2330", "10de:16c1", "00a1", "sm_90", 1 << 33, "nvidia 1.2", "9.6",
    8, 16, 16000, 32000, 3, 0, "GPU-1",
)  # fmt: skip
NOON = Moment(20_000 * 86400 + 43200, 1000, "boot-a")
MACHINES = Path(__file__).parents[2] / "fixtures/machines"


def _cbor(value: object) -> bytes:
    """Core deterministic CBOR of lists, texts, bytes, whole numbers from 0 on and nothing, written here anew."""
    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return _head(0, value)
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        return _head(3, len(value.encode())) + value.encode()
    assert isinstance(value, list)
    return _head(4, len(value)) + b"".join(map(_cbor, value))


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    size = next(size for size in (1, 2, 4, 8) if number < 1 << 8 * size)
    return bytes([major << 5 | 23 + size.bit_length()]) + number.to_bytes(size)


def test_fingerprint__sha256_over_canonical_cbor(tmp_path: Path) -> None:
    """As FINGERPRINT.md says, by an encoder of our own; the serial number is in neither."""
    plain = fingerprint([CAR], Privacy.PLAIN)
    hashed = astuple(plain.devices[0])
    assert hashed[:16] == astuple(CAR)[:16]
    assert hashed[16] not in ("GPU-1", None)
    assert plain.digest == hashlib.sha256(_cbor(["dpfedge-hw-fp", 1, "plain", None, b"", [list(hashed)]])).hexdigest()
    salts = DailySalt(tmp_path / "salt")
    salt = salts.get(NOON).value
    daily = fingerprint([CAR, CAR], Privacy.ANONYMOUS, salts, NOON)
    rows = [list(astuple(one)) for one in daily.devices]
    document = ["dpfedge-hw-fp", 1, "anonymous", 20_000, salt, rows]
    assert daily.digest == hashlib.sha256(_cbor(document)).hexdigest()
    assert daily.header == f"v1;anonymous;sha256={daily.digest}"


def test_fingerprint__golden() -> None:
    """Two plain ones, for whoever makes them in another language."""
    found = [fingerprint([one], Privacy.PLAIN).digest for one in (CAR, replace(CAR, serial=None, aer_corrected=None))]
    assert found == [
        "b1692dfd02e8a168a2a28044a6cef038e22d74f001a6d8c9c9a7683d16f9df11",
        "5f899dbf8a2bc00255e9e6b878542e25d51b5cc0ce49013565d2f0cf6aef564e",
    ]


def test_fingerprint__every_field_counts() -> None:
    """Also one that is not there."""
    changed = [replace(CAR, **{name: None}) for name in DevicePrint.__dataclass_fields__]
    digests = {fingerprint([one], Privacy.PLAIN).digest for one in (CAR, *changed)}
    assert len(digests) == 18
    assert fingerprint([CAR, CAR], Privacy.PLAIN).digest not in digests


def test_fingerprint__nobody_follows_a_car(tmp_path: Path) -> None:
    """The same for a day; the next day nothing of it is the same: neither the digest nor the serial number's hash."""
    salts, tomorrow = DailySalt(tmp_path / "salt"), Moment(NOON.wall_s + 86400, NOON.since_boot_s + 86400, NOON.boot)
    bare = replace(CAR, serial=None)
    first, again = (fingerprint([CAR, bare], Privacy.ANONYMOUS, salts, NOON) for _ in range(2))
    later = fingerprint([CAR, bare], Privacy.ANONYMOUS, salts, tomorrow)
    assert first == again
    assert later.digest != first.digest
    assert later.devices[0].serial != first.devices[0].serial
    assert "GPU-1" not in json.dumps([first.figures(), later.figures()])
    plain = fingerprint([CAR], Privacy.PLAIN)
    assert plain.devices[0].serial not in (first.devices[0].serial, later.devices[0].serial)


def test_fingerprint__of_recorded_machines(tmp_path: Path) -> None:
    """Each its own, the same on whatever machine it is made; the daily one differs from the plain one."""
    names = ("h100", "mi300x", "orin-agx", "orin-nano", "thor", "rk3588", "imx95")
    prints = [read_prints(Root(MACHINES / name)) for name in names]
    plain = [fingerprint(one, Privacy.PLAIN).digest for one in prints]
    daily = [fingerprint(one, Privacy.ANONYMOUS, DailySalt(tmp_path / "salt"), NOON).digest for one in prints]
    assert len({*plain, *daily}) == 2 * len(names)


def _soon(found: Fingerprints) -> None:
    until = time.monotonic() + 20
    while found.latest is None:
        assert time.monotonic() < until
        time.sleep(0.005)


def test_fingerprints__made_by_one_thread_and_not_for_a_request(tmp_path: Path) -> None:
    """A file that changes is seen at the next look; asking for the header looks at nothing."""
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal: 1000 kB\n")
    with Fingerprints(root=Root(root), salts=DailySalt(tmp_path / "salt")) as found:
        _soon(found)
        first = found.headers
        assert found.latest is not None
        assert first == {HEADER: found.latest.header}
        (root / "proc/meminfo").write_text("MemTotal: 2000 kB\n")
        assert found.headers == first
        assert {HEADER: found.make().header} == found.headers != first


def test_fingerprints__looks_again_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 30 s; here sooner."""
    monkeypatch.setattr(module, "REFRESH_S", 0.01)
    (tmp_path / "proc").mkdir()
    with Fingerprints(Privacy.PLAIN, root=Root(tmp_path)) as found:
        _soon(found)
        first = found.headers
        (tmp_path / "proc/meminfo").write_text("MemTotal: 2000 kB\n")
        until = time.monotonic() + 20
        while found.headers == first:
            assert time.monotonic() < until
            time.sleep(0.005)


def test_fingerprints__an_old_one_is_not_told(tmp_path: Path) -> None:
    """Its salt may be of yesterday: a driver that hangs must not make a car known."""
    clock = [0.0]
    with Fingerprints(root=Root(tmp_path), salts=DailySalt(tmp_path / "salt"), clock=lambda: clock[0]) as found:
        _soon(found)
        clock[0] = 119.0
        assert found.headers
        clock[0] = 120.0
        assert found.latest is None
        assert found.headers == {}


def test_sent__has_fields_only_where_everybody_may_know_the_machine(tmp_path: Path) -> None:
    """Firmware, memory and error counts are not salted: they would be a name that lasts."""
    (tmp_path / "proc").mkdir()
    devices = read_prints(Root(tmp_path))
    hidden = fingerprint(devices, Privacy.ANONYMOUS, DailySalt(tmp_path / "salt"))
    assert hidden.sent().keys() == {"header", "digest", "privacy", "salt_shared"}
    assert len(hidden.figures()["devices"]) == 1
    plain = fingerprint(devices, Privacy.PLAIN)
    assert plain.sent() == plain.figures()


def test_fingerprints__ask_drivers_once_and_in_their_own_thread(tmp_path: Path) -> None:
    """One that hangs holds up nobody: until it answers there is no fingerprint."""
    asked, answer = list[int](), threading.Event()

    def told() -> dict[str, dict[str, Any]]:
        asked.append(threading.get_ident())
        answer.wait(60)
        return {}

    with Fingerprints(Privacy.PLAIN, root=Root(tmp_path), told=told) as found:
        assert found.latest is None
        answer.set()
        _soon(found)
        found.make()
    assert len(asked) == 1
    assert asked[0] != threading.get_ident()


def test_fingerprints__one_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor left, say: the thread goes on, and drivers are asked again."""
    monkeypatch.setattr(module, "REFRESH_S", 0.01)
    failures = [OSError(errno.EMFILE, "too many open files"), Unavailable("no driver", where="made")]

    def told() -> dict[str, dict[str, Any]]:
        if failures:
            raise failures.pop()
        return {}

    with Fingerprints(Privacy.PLAIN, root=Root(tmp_path), told=told) as found:
        _soon(found)
    assert not failures
