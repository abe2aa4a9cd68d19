# SPDX-License-Identifier: Apache-2.0
"""The compiled module itself."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from dpfedge import _core
from dpfedge.link import Arena, LinkSpec


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
