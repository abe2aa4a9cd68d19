# SPDX-License-Identifier: Apache-2.0
"""1,000 messages a second through two stages for minutes, with random cancels: does memory or anything else grow?

    python tests/bench/bench_steady.py [--minutes 10] [--rate 1000] [--live 16] [--seed 1] [--json FILE]

Three processes: the source opens requests, sends messages of 1 to 4,096 bytes to the first stage and takes them from
the second; each stage copies nothing and answers in slots of its own; one request in three is cancelled at a random
message, by a store into the request table that both stages read. Once a second the resident memory and the
descriptors of all three are noted. It ends with code 1 when memory is not flat (2 %), a descriptor came to stay or
went, or a message is missing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from peers import header

from dpfedge.bench.measure import machine
from dpfedge.link import CANCELLED, LAST, Arena, Consumer, LinkSpec

ROOM = 4096
MESSAGES = 40  # of a request, at most
PATIENCE_NS = 10_000_000_000
SETTLE_S = 5.0  # until the interpreters have what they need
FLAT = 0.02
STOP = 0


def arena_for(live: int) -> Arena:
    """Source → first → second → source."""
    hops = (("source", "first"), ("first", "second"), ("second", "source"))
    return Arena.create([LinkSpec(f"{a}.{b}", a, b, 64, ROOM, "block", PATIENCE_NS) for a, b in hops], requests=live)


def stage(arena: Arena, came: str, sent: str, owner: int) -> None:
    """One stage's process: answers every message; one of a cancelled request without its payload."""
    consumer, producer = arena.consumer(came, owner), arena.producer(sent, owner)
    cancelled = arena.requests.cancelled
    while True:
        lease = consumer.wait(PATIENCE_NS)
        if lease is None:
            raise TimeoutError(f"{came}: no message for 10 s")
        request, turn, nbytes, flags = lease.request, lease.turn, lease.nbytes, lease.flags
        if request != STOP and cancelled(request, turn):
            lease.release()
            loan, flags = producer.loan(0), flags | CANCELLED
        else:
            loan = producer.loan(nbytes)
            if nbytes:
                # as a model would: read there, write here
                loan.array("u8", nbytes)[:] = lease.array() ^ 0xFF
            lease.release()
        producer.send(loan, kind=1, request=request, turn=turn, flags=flags)
        if request == STOP:
            return


@dataclass(slots=True)
class Request:
    """One open request of the source: what it still sends, and what it still expects."""

    key: int
    left: int
    cancel_at: int
    sent: int = 0
    back: int = 0


@dataclass
class Source:
    """Sends one message of one of the open requests, in turn; opens a new one for each that ended."""

    arena: Arena
    live: int
    draw: random.Random
    sent: int = 0
    back: int = 0
    cancelled: int = 0
    cut: int = 0
    requests: int = 0
    open: dict[int, Request] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._out, self._sink = self.arena.producer("source.first", 1), self.arena.consumer("second.source", 1)
        self._payload = bytes(range(256)) * (ROOM // 256)

    def send(self) -> None:
        """One message."""
        self._open()
        while not (ready := [one for one in self.open.values() if one.left]):
            self.take(self._sink)
            self._open()
        one = self.draw.choice(ready)
        if one.sent == one.cancel_at:
            self.arena.requests.cancel(one.key)
            self.cancelled += 1
        one.left, one.sent, self.sent = one.left - 1, one.sent + 1, self.sent + 1
        nbytes = self.draw.randint(1, ROOM)
        loan = self._out.loan(nbytes)
        loan.view[:] = self._payload[:nbytes]
        self._out.send(loan, kind=1, request=one.key, turn=one.sent, flags=0 if one.left else LAST)

    def _open(self) -> None:
        if len(self.open) == self.live:
            return
        count = self.draw.randint(1, MESSAGES)
        key = self.arena.requests.open()
        self.open[key] = Request(key, count, self.draw.randrange(count) if self.draw.random() < 1 / 3 else -1)
        self.requests += 1

    def take(self, sink: Consumer, wait: bool = True) -> bool:
        """One answer; whether there was one."""
        lease = sink.wait(PATIENCE_NS) if wait else sink.receive()
        if lease is None:
            return False
        with lease:
            one = self.open[lease.request]
            one.back, self.back = one.back + 1, self.back + 1
            if lease.turn != one.back:
                raise ValueError(f"message {lease.turn} came where {one.back} was due")
            if lease.flags & CANCELLED:
                self.cut += 1
            elif int(lease.array()[-1]) != (lease.nbytes - 1) & 0xFF:
                raise ValueError(f"message {lease.turn} has other bytes")
            if not one.left and one.back == one.sent:
                self.arena.requests.close(self.open.pop(lease.request).key)
        return True

    def drain(self) -> None:
        """Take what is there."""
        while self.take(self._sink, wait=False):
            pass

    def finish(self) -> None:
        """Take everything that is still under way, then stop the stages."""
        while self.back < self.sent and self.take(self._sink):
            pass
        self._out.send(self._out.loan(0), kind=1, request=STOP)
        lease = self._sink.wait(PATIENCE_NS)
        if lease is not None:
            lease.release()


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one time."""

    rss: int
    descriptors: int

    @classmethod
    def of(cls, pid: int) -> Sample:
        """As /proc has it."""
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls(pages * os.sysconf("SC_PAGESIZE"), len(os.listdir(f"/proc/{pid}/fd")))


def run(seconds: float, rate: int, live: int, seed: int) -> dict[str, Any]:
    """Samples of each process once a second, and the source's counts."""
    with arena_for(live) as arena:
        fork = multiprocessing.get_context("fork").Process
        stages = {
            "first": fork(target=stage, args=(arena, "source.first", "first.second", 2)),
            "second": fork(target=stage, args=(arena, "first.second", "second.source", 3)),
        }
        for process in stages.values():
            process.start()
        pids = {"source": os.getpid()} | {name: process.pid or 0 for name, process in stages.items()}
        source = Source(arena, live, random.Random(seed))
        samples: dict[str, list[Sample]] = {name: [] for name in pids}
        begin = time.monotonic()
        settle, end = min(SETTLE_S, seconds / 2), begin + seconds
        look, due = begin + settle, begin
        while (now := time.monotonic()) < end:
            source.send()
            source.drain()
            if now >= look:
                for name, pid in pids.items():
                    samples[name].append(Sample.of(pid))
                look += 1
            due = max(due + 1 / rate, now - 0.1)  # who was asleep for long does not catch up in one burst
            time.sleep(max(0.0, due - time.monotonic()))
        took = time.monotonic() - begin
        source.finish()
        for process in stages.values():
            process.join()
        codes = [process.exitcode for process in stages.values()]
        stats = arena.stats().values()
    counts = {name: getattr(source, name) for name in ("sent", "back", "requests", "cancelled", "cut")}
    left = sum(link.loaned + link.in_flight + link.depth for link in stats)
    return {"samples": samples, "rate": source.sent / took, "codes": codes, "left": left, "seconds": took, **counts}


def verdicts(found: dict[str, Any]) -> list[dict[str, Any]]:
    """For each process: start, end and extremes of its memory and descriptors, and whether they are flat."""
    made = []
    for name, samples in found["samples"].items():
        rss, held = [one.rss for one in samples], [one.descriptors for one in samples]
        # looking at a peer that was silent for long takes a descriptor for some microseconds: two in a row count
        lasting = {min(pair) for pair in pairwise([*held, held[-1]])}
        flat = max(rss) <= rss[0] * (1 + FLAT) and min(rss) >= rss[0] * (1 - FLAT)
        made.append({
            "process": name, "flat": flat,
            "rss_start": rss[0], "rss_end": rss[-1], "rss_min": min(rss), "rss_max": max(rss),
            "fd_start": held[0], "fd_end": held[-1], "fd_max": max(held), "fd_constant": lasting == {held[0]},
        })  # fmt: skip
    return made


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--live", type=int, default=16, help="requests open at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    header()
    found = run(options.minutes * 60, options.rate, options.live, options.seed)
    table = verdicts(found)
    print(f"{found['seconds']:.0f} s, {found['rate']:.0f} messages/s: sent {found['sent']}, back {found['back']}, "
          f"{found['requests']} requests, {found['cancelled']} cancelled ({found['cut']} messages cut)")  # fmt: skip
    for row in table:
        rss = " ".join(f"{key} {row[f'rss_{key}'] / 1e6:7.2f}" for key in ("start", "end", "min", "max"))
        fds = " ".join(f"{key} {row[f'fd_{key}']}" for key in ("start", "end", "max"))
        marks = f"{'flat' if row['flat'] else 'NOT FLAT'}, {'constant' if row['fd_constant'] else 'NOT CONSTANT'}"
        print(f"{row['process']:8s} RSS MB {rss}   descriptors {fds}   {marks}")
    whole = found["sent"] == found["back"] and not any(found["codes"]) and not found["left"]
    print(f"every message answered: {whole}; slots still held: {found['left']}")
    if options.json:
        del found["samples"]
        options.json.write_text(json.dumps({"machine": machine(), "processes": table, **found}, indent=1))
    return 0 if whole and all(row["flat"] and row["fd_constant"] for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
