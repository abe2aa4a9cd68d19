# SPDX-License-Identifier: Apache-2.0
"""The compiled module itself."""

from __future__ import annotations

import gc
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from dpfedge import _core
from dpfedge.errors import UsageError
from dpfedge.link import Arena, LinkSpec

LANES = pytest.mark.skipif(not _core.Sha256.has_lanes(), reason="this processor has no SHA-256 instructions")


def test_module__uses_the_stable_abi() -> None:
    """One binary serves every Python from 3.11 on."""
    assert _core.__file__ is not None
    assert ".abi3." in Path(_core.__file__).name


def test_module__import_loads_no_numpy() -> None:
    """NumPy comes with the first array, not with the module."""
    code = "import sys, dpfedge._core; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["ArenaCore", "Producer", "Consumer", "Loan", "Lease", "Bell", "RequestTable"])
def test_types__cannot_be_made_by_hand(name: str) -> None:
    """Only the arena makes them."""
    with pytest.raises(TypeError, match="cannot create"):
        getattr(_core, name)()


def test_objects__leave_no_reference_behind() -> None:
    """Types of dropped objects have as many references as before."""
    kinds = [_core.ArenaCore, _core.Producer, _core.Consumer, _core.Loan, _core.Lease, _core.Bell, _core.RequestTable]

    def use() -> None:
        with Arena.create([LinkSpec("a.b", "a", "b", 2, 64)], requests=1) as arena:
            producer, consumer = arena.producer("a.b", 1), arena.consumer("a.b", 2)
            loan = producer.loan(8)
            _ = loan.view, loan.array("u8", (8,)), arena.bell("a")
            del _
            producer.send(loan, kind=1, request=1, shape=(8,))
            lease = consumer.receive()
            assert lease is not None
            lease.view.tobytes()
            lease.array()

    use()
    gc.collect()
    before = [sys.getrefcount(kind) for kind in kinds]
    for _ in range(20):
        use()
    gc.collect()

    assert [sys.getrefcount(kind) for kind in kinds] == before


@LANES
def test_sha256__alone_and_in_company() -> None:
    """The digests of hashlib, for pieces of any length alone and of whole blocks beside another one."""
    data = bytes(range(256)) * 20
    one, other = _core.Sha256(), _core.Sha256()
    one.update(data[:64])
    for size in (0, 64, 1024):
        one.update_both(data[:size], other, memoryview(data)[size : 2 * size])
    assert other.digest() == hashlib.sha256(data[64:128] + data[1024:2048]).digest()
    for size in (1, 62, 3, 130):
        one.update(data[:size])
    told = b"".join(data[:size] for size in (64, 0, 64, 1024, 1, 62, 3, 130))
    assert one.digest() == one.digest() == hashlib.sha256(told).digest()


@LANES
def test_sha256__refuses_company_that_does_not_fit() -> None:
    """And is what it was before."""
    one, other = _core.Sha256(), _core.Sha256()
    with pytest.raises(UsageError, match=r"side by side; found 64 and 128 bytes"):
        one.update_both(bytes(64), other, bytes(128))
    with pytest.raises(UsageError, match="side by side"):
        one.update_both(bytes(3), other, bytes(3))
    with pytest.raises(TypeError, match="another Sha256"):
        one.update_both(bytes(64), one, bytes(64))
    with pytest.raises(TypeError, match="bytes-like"):
        one.update_both(bytes(64), other, "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no arguments"):
        _core.Sha256(1)  # type: ignore[call-arg]
    assert one.digest() == other.digest() == hashlib.sha256().digest()
    other.update(b"a")
    with pytest.raises(UsageError, match="side by side"):
        one.update_both(bytes(64), other, bytes(64))
