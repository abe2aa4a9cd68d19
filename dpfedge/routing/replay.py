# SPDX-License-Identifier: Apache-2.0
"""Proves a routing log: every table built anew from names and weights, every decision made again; differences out.

Nothing of the log is believed but names, weights and ids: hashes, digests, counts and owners are reckoned and compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpfedge.errors import RouteError, UsageError
from dpfedge.routing.instances import Instance
from dpfedge.routing.key import hash_key, slot_of
from dpfedge.routing.log import read_log, text_id
from dpfedge.routing.table import Table

__all__ = ["Replayed", "replay"]

_TABLES_KEPT = 64  # a decision may be written down after later tables: those of the last second at 50 a second


@dataclass(frozen=True, slots=True)
class Difference:
    """One line that is not as the rules say."""

    line: int
    what: str
    logged: object
    proved: object


@dataclass(slots=True)
class Replayed:
    """What became of a log."""

    changes: int = 0
    decisions: int = 0
    tables: int = 0
    """Built in full, each compared with the digest that was logged."""
    differences: list[Difference] = field(default_factory=list)

    @property
    def proved(self) -> bool:
        """Whether every line is as the rules say."""
        return not self.differences


@dataclass(slots=True)
class _State:
    bits: int
    key_seed: int
    generation: int
    instances: dict[int, Instance]
    tables: dict[int, tuple[Table, dict[int, str]]]
    last: Table
    seen: int = -1
    """The highest generation that a decision named."""

    def built(self) -> Table:
        """The table of a full build, kept for decisions."""
        table = Table(self.bits, self.key_seed)
        for index, instance in self.instances.items():
            table.note(index, instance.seed, instance.weight)
        table.build()
        self.tables[self.generation] = table, {index: one.name for index, one in self.instances.items()}
        while len(self.tables) > _TABLES_KEPT:
            del self.tables[next(iter(self.tables))]
        self.last = table
        return table


def replay(path: Path) -> Replayed:
    """Prove the log at `path`; RouteError when it is none, or a line lacks what it must have."""
    replayed, state = Replayed(), None
    for number, line in read_log(path):
        try:
            if "log" in line:
                state = _begin(line, state)
                found = _check_table(line, state)
                replayed.tables += 1
            elif "lost" in line:
                found = iter([("lines that could not be written", line["lost"], 0)])
            elif state is None:
                raise RouteError("the log does not begin with a table", where=f"{path}:{number}")
            elif "change" in line:
                found = _change(line["change"], state)
                replayed.changes += 1
                replayed.tables += 1
            else:
                found = _decision(line["decision"], state)
                replayed.decisions += 1
            replayed.differences.extend(Difference(number, *one) for one in found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RouteError("the line lacks what it must have", where=f"{path}:{number}", found=repr(error)) from error
        except UsageError as error:  # a name, a weight, an id or a size that cannot be
            where = f"{path}:{number}: {error.where}"
            raise RouteError(error.what, where=where, found=error.found, allowed=error.allowed) from error
    if state is None:
        raise RouteError("the log is empty", where=str(path))
    return replayed


_Found = Iterator[tuple[str, object, object]]


def _begin(line: Mapping[str, Any], before: _State | None) -> _State:
    instances = {row["index"]: Instance(row["name"], row["weight"]) for row in line["instances"]}
    # a log that goes on in a new file still proves decisions of the tables before
    tables = before.tables if before is not None and before.generation <= line["generation"] else {}
    bits, key_seed = line["bits"], int(line["key_seed"], 16)
    return _State(bits, key_seed, line["generation"], instances, tables, Table(bits, key_seed))


def _check_table(line: Mapping[str, Any], state: _State) -> _Found:
    yield from _compare("digest", line["digest"], f"{state.built().digest():016x}")


def _change(line: Mapping[str, Any], state: _State) -> _Found:
    before, index, weight, name = state.last, line["index"], line["weight"], line["name"]
    # changes published at once have one, and a table may be published again; but no decision knows what is to come
    least = max(state.generation, state.seen + 1)
    if line["generation"] < least:
        yield "generation", line["generation"], f"from {least} on"
    old = state.instances.get(index)
    if old is not None and old.name != name and old.weight != 0:
        yield "the index was another instance's, which had weight", name, old.name
    state.generation = line["generation"]
    state.instances[index] = Instance(name, weight)
    table = state.built()
    yield from _compare("digest", line["digest"], f"{table.digest():016x}")
    yield from _compare("table slots that moved", line["moved"], int(np.count_nonzero(table.owners != before.owners)))
    moved = (table.owners != before.owners) & (table.owners != index) & (before.owners != index)
    if moved.any():
        yield "table slots moved between instances that did not change", None, int(moved.sum())


def _decision(line: Mapping[str, Any], state: _State) -> _Found:
    hash = int(line["hash"], 16)
    if "model" in line:
        proved = hash_key(text_id(line["model"]), text_id(line["user"]), line["ts_ms"], state.key_seed)
        yield from _compare("hash", line["hash"], f"{proved:016x}")
    slot = slot_of(hash, state.bits)
    yield from _compare("table slot", line["slot"], slot)
    state.seen = max(state.seen, line["generation"])
    before = [generation for generation in state.tables if generation <= line["generation"]]
    if not before:
        yield "generation", line["generation"], f"from {min(state.tables)} on"
        return
    table, names = state.tables[max(before)]
    owner = table.owner(slot)
    yield from _compare("instance", line["instance"], names[owner] if owner is not None else None)


def _compare(what: str, logged: object, proved: object) -> _Found:
    if logged != proved:
        yield what, logged, proved
