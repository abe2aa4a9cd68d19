# SPDX-License-Identifier: Apache-2.0
"""A stage's `sync` against its kind and its links: the checked record out, or a ConfigError before anything starts.

How messages are put together is `stage/join.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.errors import ConfigError
from dpfedge.stage.join import Sync
from dpfedge.stage.kinds import StageKind

__all__ = ["read_sync"]


def read_sync(
    section: Mapping[str, Any], kind: StageKind, inputs: Mapping[str, str], slots: Mapping[str, int], where: str
) -> Sync:
    """`inputs`: link → the port it feeds; `slots`: link → how many it has. ConfigError names what does not fit."""
    sync = Sync.of(section, where, sorted(set(inputs.values())))
    if not kind.syncs:
        remedy = "remove sync, or make the stage a dpfedge.stage.sets.Sets"
        raise ConfigError("this stage takes its inputs as they come", where=where, found=kind.name, remedy=remedy)
    for link, port in inputs.items():
        # a join may hold all it may, the set that is looked at, and the producer still needs a slot to write in
        if slots[link] < sync.depth + 2:
            raise ConfigError(
                f"link {link} has too few slots for sync.depth", where=where, found=f"{slots[link]} slots, depth "
                f"{sync.depth}", allowed=f"at least {sync.depth + 2} slots, or a depth of {max(1, slots[link] - 2)}",
                remedy=f"write slots: {sync.depth + 2} on the link to {port}, or a smaller depth",
            )  # fmt: skip
    return sync
