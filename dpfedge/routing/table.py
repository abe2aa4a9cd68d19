# SPDX-License-Identifier: Apache-2.0
"""The routing table: instances with weights in, one owner for each table slot out; the work is done in C.

It publishes nothing, and knows of health only what the weights say.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from dpfedge import _core
from dpfedge.errors import NoInstance
from dpfedge.routing.instances import Instance
from dpfedge.routing.key import BITS, KEY_SEED

__all__ = ["NONE", "Table", "ranking"]

NONE = 0xFFFF
"""The owner of a table slot that no instance serves."""


class Table(_core.RouteTable):
    """2**bits table slots, each owned by one instance or nobody; instances are known by index.

    `put`, `weigh` and `lookup` are C and documented there. After any row of changes the table is the one that `build`
    makes, and no change moves a slot between instances it does not name. One thread changes it at a time.
    """

    @classmethod
    def of(cls, instances: Sequence[Instance], bits: int = BITS, key_seed: int = KEY_SEED) -> Self:
        """The table of these, which get the indices 0, 1, …; UsageError when two have one name."""
        table = cls(bits, key_seed)
        for index, instance in enumerate(instances):
            table.note(index, instance.seed, instance.effective)
        table.build()
        return table

    @property
    def owners(self) -> NDArray[np.uint16]:
        """A read-only view of the owners, uint16[2**bits]; it changes with the table."""
        return np.frombuffer(memoryview(self), np.uint16)

    def shares(self, count: int) -> list[int]:
        """How many table slots each of the indices 0 … count-1 owns."""
        found: list[int] = np.bincount(self.owners, minlength=NONE + 1)[:count].tolist()
        return found

    def nobody(self) -> NoReturn:
        """What `lookup` does where no instance has weight: NoInstance."""
        raise NoInstance("no instance can serve the request", health={}, remedy="give an instance weight")


def ranking(instances: Sequence[Instance], slot: int) -> list[int]:
    """Who owns a table slot, and who would if those before failed: indices of the instances with weight, best first."""
    bids = []
    for index, instance in enumerate(instances):
        if instance.effective:
            hash = _core.xxh64(slot.to_bytes(8, "little"), instance.seed)
            bids.append((Fraction(_core.route_cost(hash), instance.effective), -hash, index))
    return [index for _, _, index in sorted(bids)]
