# SPDX-License-Identifier: Apache-2.0
"""The table in the kernel."""

from __future__ import annotations

import numpy as np
import pytest

from dpfedge.errors import UsageError
from dpfedge.routing import Instance, Table
from dpfedge.routing.kernel.addresses import Address
from dpfedge.routing.kernel.table import INSTANCES_MAX, TABLE_BYTES, spread
from tests.unit.routing.kernel.conftest import Attach

NOBODY = b"\xff" * TABLE_BYTES


@pytest.mark.parametrize("bits", [4, 12, 16])
def test_spread__keeps_every_keys_owner(bits: int) -> None:
    """A smaller table in the kernel's 2**16 slots."""
    table = Table.of([Instance(name) for name in "abc"], bits)
    wide = np.frombuffer(spread(table.owners.tobytes(), bits), np.uint16)
    for hash in range(0, 1 << 64, (1 << 64) // 997):
        assert wide[hash >> 48] == table.owners[hash >> (64 - bits)]


def test_spread__of_more_slots_than_the_kernel_has() -> None:
    """It is refused, with the remedy."""
    with pytest.raises(UsageError, match=r"found 17; allowed up to 16; publish a table of 16 bits"):
        spread(bytes(2 << 17), 17)


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
    with pytest.raises(UsageError, match=f"allowed {TABLE_BYTES} bytes, {INSTANCES_MAX} instances"):
        table.publish(NOBODY, [None] * (INSTANCES_MAX + 1))
    assert table.generation == 0
