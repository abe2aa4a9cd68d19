# SPDX-License-Identifier: Apache-2.0
"""Messages of several inputs in, sets that belong together in time out; it waits for nobody and knows no link.

One port leads: each of its messages makes at most one set, in the order of its times, with one message of every other
port. Which one is the policy:

* `exact`: the one with the very same time; each is used once.
* `nearest`: the one nearest in time, no farther than the tolerance; of two as near, the earlier. It may be used again.
* `latest`: the newest one at or before the lead's time that is here now; it is used until a newer one takes its place.

`exact` and `nearest` decide only what no later message can change: a port must have reached the lead's time, or have
ended. So the sets do not depend on the order in which the ports' messages arrive, as long as no port overflows. That is
the guarantee of MediaPipe's default input policy, which decides "settled" timestamps only and demands rising ones
(developers.google.com/edge/mediapipe/framework/framework_concepts/synchronization). `latest` trades it for never
waiting, as MediaPipe's ImmediateInputStreamHandler and NNStreamer's `refresh` do; `nearest` is NNStreamer's `basepad`
with its duration (nnstreamer: Documentation/synchronization-policies-at-mux-merge.md). Unlike them, a lead without a
partner makes no incomplete set: it is dropped, and everything dropped is counted by port.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

from dpfedge.config import check, duration_ms, nearest
from dpfedge.errors import ConfigError, StageError, UsageError
from dpfedge.records import dataclass
from dpfedge.stage.sync_schema import SCHEMA

__all__ = ["Count", "Join", "Policy", "Sync", "Synced", "Timed"]

Policy = Literal["exact", "nearest", "latest"]


class Timed(Protocol):
    """What a join needs of a message."""

    @property
    def captured_ns(self) -> int:
        """Its time; 0 is none."""

    def release(self) -> None:
        """End the lease."""


M = TypeVar("M", bound=Timed)


@dataclass(frozen=True, slots=True)
class Sync:
    """How a stage's inputs belong together. `tolerance_ns` counts for `nearest` only."""

    lead: str
    policy: Policy = "exact"
    tolerance_ns: int = 0
    depth: int = 4

    @classmethod
    def of(cls, section: Mapping[str, Any], where: str, ports: Collection[str]) -> Sync:
        """The checked `sync` of a stage with these inputs; ConfigError names the place and what to write instead."""
        check(section, SCHEMA, where)
        place = getattr(section, "where", lambda key: where)
        lead, policy = section["lead"], section.get("policy", "exact")
        if lead not in ports:
            raise ConfigError(
                "sync.lead: no such input", where=place("lead"), found=lead, allowed=", ".join(sorted(ports)),
                remedy=nearest(lead, ports),
            )  # fmt: skip
        if (policy == "nearest") != ("tolerance" in section):
            what = "`nearest` needs a tolerance" if policy == "nearest" else f"`{policy}` has no tolerance"
            remedy = "add one, for example 50ms" if policy == "nearest" else "remove it, or write policy: nearest"
            raise ConfigError(f"sync: {what}", where=place("policy"), remedy=remedy)
        tolerance = duration_ms(section["tolerance"]) if policy == "nearest" else 0
        return cls(lead, policy, round(tolerance * 1e6), section.get("depth", 4))

    def join(self, ports: Collection[str]) -> Join[Any]:
        """A join of these ports, for one request."""
        return Join(ports, lead=self.lead, policy=self.policy, tolerance_ns=self.tolerance_ns, depth=self.depth)


@runtime_checkable
class Synced(Protocol):
    """A stage that takes its inputs put together."""

    sync: Sync | None
    """Set from the pipeline once it is made; None: the pipeline says nothing."""


@dataclass(slots=True)
class Count:
    """What became of a port's messages: every one that was put is in exactly one of these, or still held."""

    used: int = 0
    """In a set, once or more."""
    unmatched: int = 0
    """Dropped: no set can have it any more, or, of the lead, another port had nothing for it."""
    overflowed: int = 0
    """Dropped: `depth` newer ones waited."""

    @property
    def dropped(self) -> int:
        """All that reached no set."""
        return self.unmatched + self.overflowed


class _Queue(Generic[M]):
    """The messages of one port that may still be needed, oldest first; the first may have been in a set already."""

    def __init__(self) -> None:
        self.waiting: deque[M] = deque()
        self.count = Count()
        self.newest_ns, self.ended, self.first_used = 0, False, False

    def reached(self, time_ns: int) -> bool:
        """Whether every message before `time_ns` that will ever come is here."""
        return self.ended or self.newest_ns >= time_ns

    def passed(self, time_ns: int) -> bool:
        """Whether every message at or before `time_ns` that will ever come is here."""
        return self.ended or self.newest_ns > time_ns

    def first_at(self, time_ns: int) -> bool:
        """Whether the first message has this very time."""
        return bool(self.waiting) and self.waiting[0].captured_ns == time_ns

    def distance(self, time_ns: int) -> int | None:
        """Of the first message from `time_ns`."""
        return abs(self.waiting[0].captured_ns - time_ns) if self.waiting else None

    def nearest(self, time_ns: int) -> int:
        """How many messages stand before the one nearest to `time_ns`; of two as near, the earlier."""
        times = [message.captured_ns for message in self.waiting]
        return min(range(len(times)), key=lambda place: abs(times[place] - time_ns), default=0)

    def latest(self, time_ns: int) -> int:
        """How many messages stand before the newest one at or before `time_ns`, or before those after it."""
        return max(0, sum(message.captured_ns <= time_ns for message in self.waiting) - 1)

    def use(self) -> M:
        """The first message, for a set."""
        self.count.used += not self.first_used
        self.first_used = True
        return self.waiting[0]

    def pop(self) -> M:
        """Take the first message out; whoever takes it releases it."""
        self.first_used = False
        return self.waiting.popleft()


class Join(Generic[M]):
    """Puts the messages of `ports` together; one request's, on one thread.

    It owns every message it was given until it releases it: a set stays valid until the next `take` or `close`, and who
    took it releases nothing, because a message may be in the next set again. On each port at most `depth` messages wait
    beside the one in the set; when more come, the oldest goes. They are leases on the link's slots: a link needs more
    of them than `depth` + 1.
    """

    def __init__(
        self, ports: Collection[str], *, lead: str, policy: Policy = "exact", tolerance_ns: int = 0, depth: int = 8
    ) -> None:
        if lead not in ports:
            raise UsageError("the lead is no port", where="join", found=lead, allowed=", ".join(ports))
        self._queues: dict[str, _Queue[M]] = {port: _Queue() for port in ports}
        self._others = {port: queue for port, queue in self._queues.items() if port != lead}
        self._lead, self._policy, self._tolerance_ns, self._depth = self._queues[lead], policy, tolerance_ns, depth
        self._taken_once = tuple(self._queues.values()) if policy == "exact" else (self._lead,)
        self._spent: list[M] = []
        """Messages that were in a set, perhaps in the one that is still looked at, and will be in none again."""

    @property
    def counts(self) -> Mapping[str, Count]:
        """Port → what became of its messages."""
        return {port: queue.count for port, queue in self._queues.items()}

    @property
    def finished(self) -> bool:
        """Whether no set can come any more: the lead has ended and nothing of it waits."""
        return self._lead.ended and not self._lead.waiting

    def put(self, port: str, message: M) -> None:
        """Take a message over; StageError, and it stays the caller's, when it has no time or one before the last."""
        queue = self._open(port)
        time_ns = message.captured_ns
        if time_ns <= 0:
            remedy = "give every message of a joined input the time it was captured"
            raise StageError("the message has no time", where=f"port {port}", found=time_ns, remedy=remedy)
        if time_ns < queue.newest_ns:
            raise StageError(
                "time went backwards", where=f"port {port}", found=f"{time_ns} ns after {queue.newest_ns} ns",
                allowed="times that stay or rise",
            )  # fmt: skip
        queue.newest_ns = time_ns
        queue.waiting.append(message)
        if len(queue.waiting) > self._depth:
            self._drop(queue, overflow=True)

    def end(self, port: str) -> None:
        """Nothing more comes on this port."""
        self._open(port).ended = True

    def take(self) -> Mapping[str, M] | None:
        """The next set, or None while a port may still bring what belongs to it, or when nothing waits."""
        self._release_spent()
        while self._lead.waiting:
            time_ns = self._lead.waiting[0].captured_ns
            found = [self._find(queue, time_ns) for queue in self._others.values()]
            if False in found:
                self._drop(self._lead)
            elif None in found:
                return None
            else:
                return self._set()
        if self._lead.ended:
            self._clear()
            self._release_spent()
        return None

    def close(self) -> None:
        """Release everything that is held; what never was in a set is counted."""
        self._clear()
        self._release_spent()

    def _open(self, port: str) -> _Queue[M]:
        queue = self._queues.get(port)
        if queue is None:
            raise UsageError("no such port", where="join", found=port, allowed=", ".join(self._queues))
        if queue.ended:
            raise StageError("a message came after the end", where=f"port {port}")
        return queue

    def _find(self, queue: _Queue[M], time_ns: int) -> bool | None:
        """Bring what belongs to `time_ns` to the front of a queue. False: nothing does; None: not decided yet.

        Leads' times never fall, so what stands before the best message for this lead is of no use for any later one.
        """
        if self._policy == "exact":
            while queue.waiting and queue.waiting[0].captured_ns < time_ns:
                self._drop(queue)
            return True if queue.first_at(time_ns) else False if queue.passed(time_ns) else None
        for _ in range(queue.latest(time_ns) if self._policy == "latest" else queue.nearest(time_ns)):
            self._drop(queue)
        if self._policy == "latest":
            return bool(queue.waiting) and queue.waiting[0].captured_ns <= time_ns
        if not queue.reached(time_ns):
            return None
        distance = queue.distance(time_ns)
        return distance is not None and distance <= self._tolerance_ns

    def _set(self) -> Mapping[str, M]:
        taken = {port: queue.use() for port, queue in self._queues.items()}
        self._spent += [queue.pop() for queue in self._taken_once]
        return taken

    def _drop(self, queue: _Queue[M], *, overflow: bool = False) -> None:
        if queue.first_used:  # it may be in the set that somebody still looks at
            self._spent.append(queue.pop())
            return
        if overflow:
            queue.count.overflowed += 1
        else:
            queue.count.unmatched += 1
        queue.pop().release()

    def _release_spent(self) -> None:
        spent, self._spent = self._spent, []
        for message in spent:
            message.release()

    def _clear(self) -> None:
        for queue in self._queues.values():
            while queue.waiting:
                self._drop(queue)
