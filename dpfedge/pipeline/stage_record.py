# SPDX-License-Identifier: Apache-2.0
"""A stage as its process is told of it: plain values that travel in a message, with everything about it decided.

`graph.py` makes it of a pipeline's section, in the process that supervises; whoever runs a stage needs no graph, and
the parent that forks it imports no stage's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

from dpfedge.records import dataclass

__all__ = ["StageRecord", "Wiring"]


@dataclass(frozen=True, slots=True)
class Wiring:
    """The links of one stage: which of its ports each incoming one feeds, and which link each of its ports fills."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    """Link → input port."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Output port → link."""
    failing: frozenset[str] = frozenset()
    """Output ports whose request fails when no slot is free."""
    delayed: frozenset[str] = frozenset()
    """Input ports whose end is not waited for."""


@dataclass(frozen=True, slots=True)
class StageRecord:
    """One stage."""

    name: str
    kind: str
    model: str = ""
    """Empty: none."""
    config: Mapping[str, Any] = field(default_factory=dict)
    wiring: Wiring = field(default_factory=Wiring)
    sync: Mapping[str, Any] | None = None
    """The fields of a `dpfedge.stage.join.Sync`; None: its inputs come as they come."""
    budget_ns: int = 0
    hang_ns: int = 0
    """A step that lasts longer has hung: its process ends, and is started again. 0: for ever."""

    def as_map(self) -> dict[str, Any]:
        """JSON values, for `of_map`."""
        data = asdict(self)
        wiring = data["wiring"]
        data["wiring"] = {**wiring, "failing": sorted(wiring["failing"]), "delayed": sorted(wiring["delayed"])}
        return data

    @classmethod
    def of_map(cls, data: Mapping[str, Any]) -> StageRecord:
        """What `as_map` gave."""
        wiring = data["wiring"]
        sets = {"failing": frozenset(wiring["failing"]), "delayed": frozenset(wiring["delayed"])}
        return cls(**{**data, "wiring": Wiring(**{**wiring, **sets})})
