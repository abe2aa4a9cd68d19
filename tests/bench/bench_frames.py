# SPDX-License-Identifier: Apache-2.0
"""Frames through three stages, each a process, beside the rate at which the producer alone writes the same memory.

    python tests/bench/bench_frames.py [--frames 300] [--rounds 7] [--bytes 3000000] [--read] [--json FILE]

The source writes every byte of a frame into a slot. All three stages take it there, one after the other: a stage looks
at a frame when the stage before has passed it on, and the slot is free when the last one is done. Stages look at the
first and the last byte; with --read at all of them. The source has the first core, the stages share the others. Every
round measures the bare writing (loan, write, abandon) and the pipeline, so the ratio of a round has one noise. Nothing
is asserted but the frames themselves.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from peers import header

from dpfedge.bench.measure import machine, median_ratio
from dpfedge.link import LAST, Arena, Consumer, Lease, LinkSpec, Producer

STAGES = ("first", "second", "third")
SLOTS = 8
PATIENCE_NS = 10_000_000_000
SOURCE = 1


def arena_for(nbytes: int) -> Arena:
    """One link with the frames for all stages, and a small one from each stage to the next and back to the source."""
    # a bell of its own for what a stage waits for first: a frame wakes the first stage, and nobody in vain
    ends = (*(f"{stage}'s turn" for stage in STAGES), "source")
    first, *others = STAGES
    frames = LinkSpec("frames", "source", first, SLOTS, nbytes, "block", PATIENCE_NS, tuple(others))
    passed = [LinkSpec(stage, stage, ends[at + 1], SLOTS, 64, "block", PATIENCE_NS) for at, stage in enumerate(STAGES)]
    return Arena.create([frames, *passed], requests=1)


def taken(consumer: Consumer) -> Lease:
    """The next message; an error when none comes for ten seconds."""
    lease = consumer.wait(PATIENCE_NS)
    if lease is None:
        raise TimeoutError(f"{consumer.link}: no message for 10 s")
    return lease


def look(lease: Lease, whole: bool) -> None:
    """Check that the frame is the one of its turn."""
    view = lease.array()
    wanted = lease.turn & 255
    ends = (int(view[0]), int(view[-1]))
    if ends != (wanted, wanted) or (whole and (view.min(), view.max()) != ends):
        raise ValueError(f"frame {lease.turn} is not what was sent: {ends}")


def stage(arena: Arena, at: int, whole: bool) -> None:
    """One stage's process: to the last frame."""
    name, owner, cores = STAGES[at], 2 + at, sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    frames, out = arena.consumer("frames", owner, name), arena.producer(name, owner)
    before = arena.consumer(STAGES[at - 1], owner) if at else None
    last = False
    while not last:
        if before is not None:
            taken(before).release()
        with taken(frames) as lease:
            look(lease, whole)
            turn, flags = lease.turn, lease.flags
        out.send(out.loan(8), kind=1, request=1, turn=turn, flags=flags)
        last = bool(flags & LAST)


def write(producer: Producer, nbytes: int, turn: int) -> Any:
    """A loan whose every byte is written."""
    loan = producer.loan(nbytes)
    loan.array("u8", nbytes).fill(turn & 255)
    return loan


def bare(producer: Producer, frames: int, nbytes: int) -> float:
    """Bytes per second of writing alone."""
    start = time.perf_counter_ns()
    for turn in range(frames):
        producer.abandon(write(producer, nbytes, turn))
    return frames * nbytes * 1e9 / (time.perf_counter_ns() - start)


def piped(producer: Producer, sink: Consumer, frames: int, nbytes: int, last: bool) -> float:
    """Bytes per second until the last stage has passed the last frame on."""
    start, back = time.perf_counter_ns(), 0
    for turn in range(frames):
        loan, flags = write(producer, nbytes, turn), LAST if last and turn == frames - 1 else 0
        producer.send(loan, kind=1, request=1, turn=turn, dtype=6, shape=(nbytes,), flags=flags)
        while (lease := sink.receive()) is not None:
            lease.release()
            back += 1
    while back < frames:
        taken(sink).release()
        back += 1
    return frames * nbytes * 1e9 / (time.perf_counter_ns() - start)


def run(frames: int, rounds: int, nbytes: int, whole: bool) -> dict[str, Any]:
    """Rates of every round in GB/s, and what the links counted."""
    with arena_for(nbytes) as arena:
        fork = multiprocessing.get_context("fork").Process
        processes = [fork(target=stage, args=(arena, at, whole)) for at in range(len(STAGES))]
        for process in processes:
            process.start()
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})
        producer, sink = arena.producer("frames", SOURCE), arena.consumer(STAGES[-1], SOURCE)
        alone, through = [], []
        for number in range(rounds + 1):  # the first warms up
            alone.append(bare(producer, frames, nbytes) / 1e9)
            through.append(piped(producer, sink, frames, nbytes, number == rounds) / 1e9)
        for process in processes:
            process.join()
        codes = [process.exitcode for process in processes]
        if any(codes):
            raise RuntimeError(f"stages ended with {codes}")
        os.sched_setaffinity(0, cores)
        stats = arena.stats()
    counted = ("sent", "received", "copies", "dropped")
    counts = {key: sum(getattr(link, key) for link in stats.values()) for key in counted}
    return {"alone": alone[1:], "through": through[1:], "ratio": median_ratio(through[1:], alone[1:]), **counts}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--bytes", type=int, default=3_000_000)
    parser.add_argument("--read", action="store_true", help="every stage reads every byte")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    header()
    found = run(options.frames, options.rounds, options.bytes, options.read)
    print(f"{options.rounds} rounds of {options.frames} frames of {options.bytes} bytes, {SLOTS} slots, three stages")
    rate = float(np.median(found["through"]))
    print(f"written by the producer alone  {np.median(found['alone']):7.2f} GB/s")
    print(f"through three stages           {rate:7.2f} GB/s, {rate * 1e9 / options.bytes:.0f} frames/s")
    print(f"through / alone                {found['ratio']:7.2f}")
    print(f"copies {found['copies']}, dropped {found['dropped']}, sent {found['sent']}, received {found['received']}")
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine(), "method": vars(options) | {"json": ""}, **found}, indent=1)
        )


if __name__ == "__main__":
    main()
