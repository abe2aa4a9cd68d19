# SPDX-License-Identifier: Apache-2.0
"""An arena: the one block of shared memory that holds a pipeline's bells, request table and links.

`Arena.create` makes it from link specs, `Arena.attach` maps it from a descriptor. It moves no message itself and knows
nothing of the processes that attach.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from dpfedge import _core
from dpfedge.errors import LinkError, UsageError
from dpfedge.link.memory import available, reserve
from dpfedge.link.ports import Bell, Consumer, Producer, RequestTable
from dpfedge.link.ring import PLACES, POLICIES, LinkSpec, LinkStats

__all__ = ["Arena"]


class Arena:
    """The mapped arena of a pipeline. `fd` is its descriptor: hand it to another process and attach there.

    A forked child may go on using its parent's Arena, and attaches its own ports.
    """

    fd: int
    links: Mapping[str, LinkSpec]
    requests: RequestTable

    def __init__(self, fd: int, core: _core.ArenaCore) -> None:
        """Use `create` or `attach`; takes over `fd`."""
        self.fd = fd
        self._core = core
        self._stages = {core.stage(index): index for index in range(core.stage_count)}
        names = list(self._stages)
        specs = [_spec(core.link(index), names) for index in range(core.link_count)]
        self._index = {spec.name: index for index, spec in enumerate(specs)}
        self.links = MappingProxyType({spec.name: spec for spec in specs})
        if len(self._stages) != core.stage_count or len(self._index) != core.link_count:
            raise LinkError("a name appears twice", where="arena")
        self.requests = core.requests()

    @classmethod
    def create(cls, links: Sequence[LinkSpec], *, requests: int, name: str = "dpfedge") -> Arena:
        """Make an arena for the links and `requests` places of live requests (1..65535).

        Its memory is reserved here: LinkError with the needed and the free bytes when the machine has not got them.
        Where memfds are refused it is a file in the run directory (`sealed` is False then), and a line on stderr.
        """
        _check(links)
        stages = list(dict.fromkeys(stage for spec in links for stage in (spec.producer, *spec.consumers)))
        rows = [_row(spec, stages) for spec in links]
        plan = (name, stages, rows, requests, mmap.PAGESIZE)
        return cls._open(reserve(partial(_core.create, *plan), _core.plan(*plan)))

    @classmethod
    def attach(cls, fd: int) -> Arena:
        """Map and check the arena behind a descriptor, which stays the caller's.

        LinkError when it is no arena, of another version, neither sealed nor a private file without a name, or when any
        offset does not fit its size.
        """
        try:
            own = os.dup(fd)
        except OSError as error:
            raise LinkError("descriptor cannot be used", where="arena", found=f"{fd}: {error.strerror}") from error
        return cls._open(own)

    @classmethod
    def _open(cls, fd: int) -> Arena:
        try:
            return cls(fd, _core.open_arena(fd))
        except OSError as error:
            found, allowed = f"{error.strerror}, {available()} bytes free", f"{os.fstat(fd).st_size} bytes"
            os.close(fd)
            raise LinkError("memory cannot be mapped", where="arena", found=found, allowed=allowed) from error
        except (LinkError, ValueError):
            os.close(fd)
            raise

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory, all of them reserved."""
        return self._core.nbytes

    @property
    def sealed(self) -> bool:
        """Whether nobody can shrink the memory: True for a memfd, False for a file of the run directory."""
        return self._core.sealed

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages, each with a bell."""
        return tuple(self._stages)

    def producer(self, link: str, owner: int) -> Producer:
        """The sending port of a link for a process incarnation `owner` (u32, not 0).

        LinkError while another owner has it: close it there, or `reclaim` that owner after its death.
        """
        return self._core.producer(self._link(link), owner)

    def consumer(self, link: str, owner: int, stage: str | None = None) -> Consumer:
        """The receiving port of a link; messages a former consumer had not received are still there.

        `stage` says whose port, where a link has several consumers; UsageError lists them.
        """
        index = self._link(link)
        stages = self.links[link].consumers
        if stage is None and len(stages) == 1:
            return self._core.consumer(index, owner)
        if stage not in stages:
            allowed = ", ".join(stages)
            raise UsageError("which consumer's port?", where=f"link {link}", found=stage, allowed=allowed)
        return self._core.consumer(index, owner, stages.index(stage))

    def bell(self, stage: str) -> Bell:
        """The bell of a stage."""
        index = self._stages.get(stage)
        if index is None:
            raise UsageError("unknown stage", where="arena", found=stage, allowed=", ".join(self._stages))
        return self._core.bell(index)

    def reclaim(self, owner: int) -> dict[str, int]:
        """After the death of `owner`: end its loans, leases and ports; how many slots rights ended, per link.

        Then every bell rings. Safe beside working peers and safe to repeat. The owner must really be dead.
        """
        return dict(zip(self._index, self._core.reclaim(owner), strict=True))

    def stats(self) -> dict[str, LinkStats]:
        """The counters of every link."""
        return {name: LinkStats(*self._core.stats(index)) for name, index in self._index.items()}

    def pending(self, link: str) -> int:
        """Messages of a link that its consumers have not received, or have not given back."""
        stats = LinkStats(*self._core.stats(self._link(link)))
        return stats.depth + stats.in_flight

    def close(self) -> None:
        """Close the descriptor and refuse new ports; the memory is unmapped with the last port, loan, lease or view."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self._core.close()

    def __del__(self) -> None:
        if hasattr(self, "_core"):
            self.close()

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _link(self, name: str) -> int:
        index = self._index.get(name)
        if index is None:
            raise UsageError("unknown link", where="arena", found=name, allowed=", ".join(self._index))
        return index


_Row = tuple[str, int, tuple[int, ...], int, int, int, int]


def _spec(row: _Row, stages: Sequence[str]) -> LinkSpec:
    name, producer, consumers, slots, policy, slot_bytes, block_ns = row
    first, *others = (stages[index] for index in consumers)
    return LinkSpec(name, stages[producer], first, slots, slot_bytes, POLICIES[policy], block_ns, tuple(others))


def _row(spec: LinkSpec, stages: Sequence[str]) -> _Row:
    policy = POLICIES.index(spec.policy)
    producer, consumers = stages.index(spec.producer), tuple(stages.index(name) for name in spec.consumers)
    return spec.name, producer, consumers, spec.slots, policy, spec.slot_bytes, spec.block_ns


def _check(links: Sequence[LinkSpec]) -> None:
    seen: set[str] = set()
    for spec in links:
        where = f"link {spec.name}"
        if spec.name in seen:
            raise UsageError("name appears twice", where=where)
        if spec.policy not in POLICIES:
            raise UsageError("unknown policy", where=where, found=spec.policy, allowed=", ".join(POLICIES))
        if len(set(spec.consumers)) != len(spec.consumers) or len(spec.consumers) > PLACES:
            found, allowed = ", ".join(spec.consumers), f"up to {PLACES} different stages"
            raise UsageError("cannot have these consumers", where=where, found=found, allowed=allowed)
        for field in ("slots", "slot_bytes"):
            value = getattr(spec, field)
            if not 1 <= value < 1 << 32:
                raise UsageError(f"{field} out of range", where=where, found=value, allowed="1..4294967295")
        seen.add(spec.name)
