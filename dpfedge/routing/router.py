# SPDX-License-Identifier: Apache-2.0
"""The one who decides which instances have table slots: joins, leaves, weights and health in, published tables out.

Requests are not its business: they read the published table, here by `route` or in any process by `Published`,
without a lock. It reads no sensor and opens no socket; times are CLOCK_MONOTONIC.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpfedge.errors import UsageError
from dpfedge.routing.health import Health, Rule, Sample
from dpfedge.routing.instances import INSTANCES_MAX, Instance
from dpfedge.routing.key import BITS, KEY_SEED, hash_key, slot_of
from dpfedge.routing.log import RouteLog, id_text
from dpfedge.routing.publication import ENTRY_BYTES, Entry, Published, Publisher, name_of
from dpfedge.routing.table import Table

__all__ = ["GRACE_NS", "Change", "Decision", "Router"]

GRACE_NS = 1_000_000_000
"""How long an index rests before another instance gets it: a reader may still hold it."""

_HEIRS_AT_ONCE = 1 << 12
"""Table slots whose heirs a sample looks after: several instances may fail at once, and no decision waits for this."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one instance's change did."""

    generation: int
    """Of the published table that has it."""
    name: str
    index: int
    weight: int
    """What it has in the table now."""
    moved: int
    """Table slots that changed owner: all of them from or to this instance."""
    why: str


@dataclass(slots=True)  # a frozen one takes three times as long to make
class Decision:
    """Where one session goes."""

    instance: str
    index: int
    hash: int
    slot: int
    generation: int


@dataclass(slots=True)
class _Member:
    index: int
    instance: Instance
    health: Health
    gone: bool = False

    @property
    def effective(self) -> int:
        return self.instance.weight if self.health.healthy else 0

    def entry(self) -> Entry:
        one, health = self.instance, self.health
        score = health.score / 10000
        effective = 0 if self.gone else self.effective
        return Entry(one.encoded, one.seed, one.weight, effective, health.healthy, score, one.address, self.gone)


class Router:
    """Instances, their health, and the table that follows from them; changes by any thread, one at a time."""

    def __init__(
        self, publisher: Publisher | None = None, *, log: RouteLog | None = None, rule: Rule | None = None,
        bits: int = BITS, key_seed: int = KEY_SEED, clock: Callable[[], int] = time.monotonic_ns, load: bool = True,
    ) -> None:  # fmt: skip
        """With what `publisher` published last, so that a restart moves nothing; tell it by `assign` who is here now.
        Of a table whose entries make no sense nothing is taken over.

        Without a publisher the table is published in memory that only this process and its children have.
        Each change is written to `log`, then published, before its call returns. `load`: whether an instance may go out
        for being busy and short of memory; not where there is no other one to go to.
        """
        self.publisher = Publisher(None, bits=bits, key_seed=key_seed) if publisher is None else publisher
        self.published = Published(self.publisher.fd)
        self.table = Table(self.published.bits, self.published.key_seed)
        self._log, self._rule, self._load, self._clock = log, rule or Rule(), load, clock
        self._members: dict[str, _Member] = {}
        self._indices = 0
        self._resting: dict[str, tuple[int, int]] = {}  # name → (until when, its index), oldest first
        self._lock = threading.RLock()
        self._held, self._dirty = 0, False
        self._sampled: set[str] = set()  # whose health changed since it was packed
        self._packed = bytearray()  # of every index: an entry is packed when it changes, not when it is published
        try:
            self._adopt()
        except UsageError:  # names or weights that cannot be: the machine went down in a publication
            self._forget()
        if log is not None:
            log.begin(self._state(self.published.generation))

    def assign(self, instances: Sequence[Instance]) -> list[Change]:
        """Make these all that there are: others leave, new ones join, weights follow; published at once."""
        names = {one.name for one in instances}
        if len(names) != len(instances):
            raise UsageError("two instances have one name", where="instances", remedy="names are unique")
        with self.batch():
            if self._may_begin(instances):
                return self._begin(instances)
            changes = [self.leave(name) for name in [*self._members] if name not in names]
            for one in instances:
                here = self._members.get(one.name)
                if here is None:
                    changes.append(self.join(one.name, one.weight, healthy=one.healthy))
                elif here.instance.weight != one.weight:
                    changes.append(self.weigh(one.name, one.weight))
        return changes

    def join(self, name: str, weight: int = 1, *, healthy: bool = True) -> Change:
        """A new instance; UsageError when one with that name is here. `healthy`: what counts until its first sample."""
        with self._lock:
            instance = Instance(name, weight)
            if name in self._members:
                raise UsageError(
                    "an instance of this name is here", where=f"instance {name}", remedy="names are unique"
                )
            member = self._made(instance, healthy)
            moved = self.table.put(member.index, instance.seed, member.effective)
            self._members[name] = member
            return self._decided(member, moved, "join")

    def leave(self, name: str) -> Change:
        """The instance goes; its table slots go to others, and nothing else moves."""
        with self._lock:
            member = self._member(name)
            moved = self.table.weigh(member.index, 0)
            del self._members[name]
            self._resting[name] = self._clock() + GRACE_NS, member.index
            member.gone = True
            return self._decided(member, moved, "leave")

    def weigh(self, name: str, weight: int) -> Change:
        """Give an instance another weight."""
        with self._lock:
            member = self._member(name)
            member.instance = Instance(name, weight)
            return self._decided(member, self.table.weigh(member.index, member.effective), "weight")

    def sample(self, name: str, sample: Sample) -> Change | None:
        """Judge a sample of an instance's device; the change when it lost its table slots or got them back."""
        with self._lock:
            member = self._member(name)
            if not member.health.take(sample, self._now_ms()):
                self._sampled.add(name)
                self.table.find_heirs(_HEIRS_AT_ONCE)
                return None
            verb = "healthy again" if member.health.healthy else "not healthy"
            return self._reweighed(member, f"{verb}: health {member.health.score / 10000:.4f}")

    def watch(self, name: str) -> None:
        """From now on samples of this instance are expected: without them it goes out."""
        member = self._members.get(name)
        if member is not None and member.health.watched:  # nearly always, and then without the lock
            return
        with self._lock:
            self._member(name).health.watch(self._now_ms())

    def expire(self) -> list[Change]:
        """Take out instances whose samples stopped coming; call it as often as samples are due."""
        with self._lock:
            if not any(one.health.late(self._now_ms()) for one in self._members.values()):
                return []
        with self.batch():
            late = [one for one in self._members.values() if one.health.expire(self._now_ms())]
            return [self._reweighed(one, "not healthy: no samples") for one in late]

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Publish what changes inside at once, at its end."""
        with self._lock:
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1
                if self._dirty and not self._held:
                    self._publish()
                    self.table.find_heirs()

    def publish(self) -> int:
        """Publish the same table once more, so that readers see what samples have told; the generation."""
        with self._lock:
            return self._publish()

    def route(self, model: str | bytes, user: str | bytes, ts_ms: int) -> Decision:
        """Where a session goes, written to the log. NoInstance with the health map; UsageError for impossible ids.

        Who needs no record of it calls `published.lookup`.
        """
        hash = hash_key(model, user, ts_ms, self.table.key_seed)
        slot = slot_of(hash, self.table.bits)
        index, generation, data = self.published.find(hash)
        name = None if data is None else name_of(data)
        if self._log is not None:
            ids = {"model": id_text(model), "user": id_text(user), "ts_ms": ts_ms} if self._log.ids else {}
            line = {"generation": generation, "hash": f"{hash:016x}", "slot": slot, "instance": name}
            self._log.decision({**line, **ids})
        if index is None or name is None:
            self.published.nobody()
        return Decision(name, index, hash, slot, generation)

    def healthy(self, name: str) -> bool:
        """Whether the instance counts as healthy now; one that is not here is not. Takes no lock."""
        member = self._members.get(name)
        return member is not None and member.health.healthy

    def health_map(self) -> dict[str, dict[str, object]]:
        """Name → health 0 to 1, whether it counts as healthy, configured and effective weight."""
        with self._lock:
            return {name: member.entry().figures() for name, member in self._members.items()}

    def _adopt(self) -> None:
        for index, entry in self.published.entries().items():
            instance = Instance(entry.text, entry.weight, entry.healthy)
            health = Health(self._rule, self._now_ms(), healthy=entry.healthy, load=self._load)
            self._members[instance.name] = _Member(index, instance, health)
            self._pack(index, entry)
            self.table.note(index, instance.seed, instance.effective)
        for index, entry in self.published.departed().items():
            self._resting[entry.text] = self._clock() + GRACE_NS, index
            self._pack(index, entry)
        indices = [*self.published.entries(), *self.published.departed()]
        self._indices = max(indices, default=-1) + 1
        self.table.build()
        self.table.find_heirs()

    def _forget(self) -> None:
        """As over an empty table, which the next publication writes over what is there."""
        self.table = Table(self.published.bits, self.published.key_seed)
        self._members.clear()
        self._resting.clear()
        self._packed, self._indices = bytearray(), 0

    def _may_begin(self, instances: Sequence[Instance]) -> bool:
        """Whether the first instances can be taken together: a log wants the table after each, an error its place."""
        room = min(self.published.capacity, INSTANCES_MAX) - self._indices
        here = bool(self._members) or self._log is not None
        return not here and 0 < len(instances) == len({one.seed for one in instances}) <= room

    def _begin(self, instances: Sequence[Instance]) -> list[Change]:
        """The table of the first instances, built once: joining one by one takes three times as long."""
        members = [self._made(one, one.healthy) for one in instances]
        for one in members:
            self.table.note(one.index, one.instance.seed, one.effective)
        self.table.build()
        self._members = {one.instance.name: one for one in members}
        shares = self.table.shares(self._indices)
        return [self._changed(one, shares[one.index], "join") for one in members]

    def _made(self, instance: Instance, healthy: bool) -> _Member:
        health = Health(self._rule, self._now_ms(), healthy=healthy, load=self._load)
        return _Member(self._new_index(instance.name), instance, health)

    def _now_ms(self) -> int:
        return self._clock() // 1_000_000

    def _member(self, name: str) -> _Member:
        if name not in self._members:
            allowed = ", ".join(self._members) or None
            raise UsageError("no instance has this name", where=f"instance {name}", allowed=allowed)
        return self._members[name]

    def _new_index(self, name: str) -> int:
        """The index it had, else one that has rested, else a new one."""
        oldest = next(iter(self._resting), name)
        if name in self._resting or (oldest in self._resting and self._resting[oldest][0] <= self._clock()):
            return self._resting.pop(name if name in self._resting else oldest)[1]
        most = min(self.published.capacity, INSTANCES_MAX)
        if self._indices == most:
            raise UsageError("no room for another instance in this table", where=f"instance {name}", allowed=most)
        self._indices += 1
        return self._indices - 1

    def _reweighed(self, member: _Member, why: str) -> Change:
        return self._changed(member, self.table.weigh(member.index, member.effective), why)

    def _decided(self, member: _Member, moved: int, why: str) -> Change:
        """A change that somebody asked for, of which few come at once: after it every slot knows its heir."""
        change = self._changed(member, moved, why)
        if not self._held:
            self.table.find_heirs()
        return change

    def _changed(self, member: _Member, moved: int, why: str) -> Change:
        self._dirty = True
        self._pack(member.index, member.entry())
        generation = self.published.generation + 1
        weight = self.table.weight(member.index)
        change = Change(generation, member.instance.name, member.index, weight, moved, why)
        if self._log is not None:
            state = self._state(generation)
            line = {"generation": generation, "name": change.name, "index": change.index, "weight": weight}
            self._log.change({**line, "moved": moved, "why": why, "digest": state["digest"]}, state)
        if not self._held:
            self._publish()  # after the log: no decision by this table is written before the change
        return change

    def _publish(self) -> int:
        self._dirty = False
        for name in self._sampled:
            if (member := self._members.get(name)) is not None:  # one that left was packed then
                self._pack(member.index, member.entry())
        self._sampled.clear()
        return self.publisher.publish(self.table, self._packed)

    def _pack(self, index: int, entry: Entry) -> None:
        at = index * ENTRY_BYTES
        self._packed.extend(bytes(max(0, at + ENTRY_BYTES - len(self._packed))))
        self._packed[at : at + ENTRY_BYTES] = entry.pack()

    def _state(self, generation: int) -> Mapping[str, Any]:
        rows = [{"index": one.index, "name": name, "weight": one.effective} for name, one in self._members.items()]
        return {
            "bits": self.table.bits, "key_seed": f"{self.table.key_seed:016x}", "generation": generation,
            "digest": f"{self.table.digest():016x}", "instances": rows,
        }  # fmt: skip
