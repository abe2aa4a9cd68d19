# SPDX-License-Identifier: Apache-2.0
"""The table in the kernel."""

from __future__ import annotations

import numpy as np
import pytest

from dpfedge.errors import UsageError
from dpfedge.routing import Instance, Table
from dpfedge.routing.kernel.addresses import Address
from dpfedge.routing.kernel.table import INSTANCES_MAX, spread, table_form
from tests.unit.routing.kernel.conftest import Attach

NOBODY = b"\xff" * 131072


@pytest.mark.parametrize("wide", [16, 20])
@pytest.mark.parametrize("bits", [4, 12, 16])
def test_spread__keeps_every_keys_owner(bits: int, wide: int) -> None:
    """A smaller table in the kernel's slots."""
    table = Table.of([Instance(name) for name in "abc"], bits)
    made = np.frombuffer(spread(table.owners.tobytes(), bits, wide), np.uint16)
    assert len(made) == 1 << wide
    for hash in range(0, 1 << 64, (1 << 64) // 997):
        assert made[hash >> (64 - wide)] == table.owners[hash >> (64 - bits)]


def test_spread__of_more_slots_than_the_kernel_has() -> None:
    """It is refused, with the remedy."""
    with pytest.raises(UsageError, match=r"found 19; allowed up to 18; attach again, or publish a table of fewer bits"):
        spread(bytes(2 << 19), 19, 18)


@pytest.mark.parametrize("bits", [15, 23])
def test_form__of_no_size(bits: int) -> None:
    """What the programs' bounds do not fit."""
    with pytest.raises(UsageError, match=r"allowed 16\.\.22"):
        table_form(bits)


@pytest.mark.parametrize("bits", [16, 19, 20, 22])
def test_publish__a_table_of_more_slots(attach: Attach, bits: int) -> None:
    """Every slot is there, and the programs are verified for it."""
    attachment = attach(bits=bits)
    owners = np.arange(1 << bits, dtype=np.uint32).astype(np.uint16) % INSTANCES_MAX
    assert attachment.table.publish(owners.tobytes(), []) == 1
    assert attachment._loaded.get("rh_table", (1).to_bytes(4, "little"), 2 << bits) == owners.tobytes()
    assert attachment._loaded.get("rh_table", bytes(4), 2 << bits) == b"\xff" * (2 << bits)


def test_publish__counts_up_and_knows_the_addresses(attach: Attach) -> None:
    """Addresses of instances that left are known until nobody reads their table."""
    attachment = attach()
    table, loaded = attachment.table, attachment._loaded
    one, two = Address.of("10.0.0.1:80"), Address.of("[fd00::2]:80")
    assert one is not None
    assert two is not None
    assert (table.generation, table.publish(NOBODY, [one, None, two])) == (0, 1)
    assert {*loaded.keys("rh_known", 20, 9)} == {one.known, two.known}
    assert table.publish(NOBODY, [one]) == 2
    assert {*loaded.keys("rh_known", 20, 9)} == {one.known, two.known}
    table.settle()
    assert loaded.keys("rh_known", 20, 9) == [one.known]
    assert table.publish(NOBODY, []) == table.generation == 3


def test_publish__refuses_what_does_not_fit(attach: Attach) -> None:
    """Nothing is changed then."""
    table = attach().table
    with pytest.raises(UsageError, match="does not fit"):
        table.publish(NOBODY[:-2], [])
    with pytest.raises(UsageError, match=f"allowed 131072 bytes, {INSTANCES_MAX} instances"):
        table.publish(NOBODY, [None] * (INSTANCES_MAX + 1))
    assert table.generation == 0
