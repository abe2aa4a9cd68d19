# SPDX-License-Identifier: Apache-2.0
"""`dpfedge replay`: a flight recording in, what is in it out, or what is different when a package does it again."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedge.cli.trusting import add_trust_arguments, trust_options

if TYPE_CHECKING:
    from dpfedge.pipeline.flight import Recording
    from dpfedge.runtime.asynchronous import AsyncRuntime
    from dpfedge.runtime.pipeline import AsyncPipeline
    from dpfedge.runtime.recorded import RecordedRequest
    from dpfedge.runtime.replay import Replayed

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "replay"
HELP = """Show a flight recording, or give its requests to a package again and compare what comes of them bit for bit.

examples:
  dpfedge replay /run/dpfedge/flight                 what happened last
  dpfedge replay /run/dpfedge/flight voice.dpfbin    does it happen again?

A recording has words and samples only if the server ran with --flight-audio; without them nothing can be repeated.
Answers are the same only where nothing is left to chance: with temperature 0 (the demo's default) or a seed. Others,
and turns that were interrupted or during which a stage died, are named and not compared. A voice's samples also depend
on what it said before: they are compared while all of that is in the recording. Exit code 1: a difference."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("recording", type=Path, metavar="FILE", help="what --flight-recorder of serve or run wrote")
    parser.add_argument(
        "package", type=Path, nargs="?", metavar="PACKAGE", help="a .dpfbin file, an installed name, or a pipeline file"
    )
    parser.add_argument("--board", default="auto", help="board id, or `auto`")
    add_trust_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Show or repeat; 1 when something is different, or when nothing could be compared."""
    from dpfedge.pipeline.flight import Recording
    from dpfedge.runtime.recorded import recorded_requests

    recording = Recording(args.recording)
    requests = recorded_requests(recording)
    if args.package is None:
        _show(recording, requests, args.json)
        return 0
    notes, results = asyncio.run(_replay(args, recording, requests))
    if args.json:
        print(json.dumps({"notes": notes, "requests": [asdict(one) | {"key": f"{one.key:016x}"} for one in results]}))
    else:
        print("\n".join([*notes, *_lines(results)]))
    same = any(one.compared for one in results) and not any(one.differences for one in results)
    return 0 if same else 1


async def _replay(
    args: argparse.Namespace, recording: Recording, requests: Sequence[RecordedRequest]
) -> tuple[list[str], list[Replayed]]:
    from dpfedge.runtime.replay import replay

    async with await _open(args) as runtime:
        digest = runtime.manifest_sha256
        recorded = {facts.get("manifest") for facts in recording.runtimes.values()}
        notes = [] if recorded <= {digest} else ["note: the recording is of another package, or of more than one"]
        results = await replay(runtime, requests, recording.runtimes, from_start=not any(recording.complete_since_ns))
    return notes, results


async def _open(args: argparse.Namespace) -> AsyncRuntime | AsyncPipeline:
    from dpfedge.cli.run_graph import is_drawn
    from dpfedge.runtime.asynchronous import AsyncRuntime
    from dpfedge.runtime.pipeline import AsyncPipeline

    kind = AsyncPipeline if is_drawn(args.package) else AsyncRuntime
    return await kind.open(args.package, board=args.board, **trust_options(args))


def _lines(results: Sequence[Replayed]) -> Iterator[str]:
    for one in results:
        head = f"request {one.key:016x} {one.mode or ''}".rstrip()
        if one.skipped is not None:
            yield f"{head}: not compared: {one.skipped}"
            continue
        yield f"{head}: {len(one.compared)} turns compared, {'different' if one.differences else 'the same'}"
        yield from (f"  turn {turn}: not compared: it was interrupted" for turn in one.skipped_turns)
        if not one.sound:
            yield "  samples not compared: the voice's noise depends on all it said before, which was not all repeated"
        yield from (f"  {text}" for text in one.differences)
    if not any(one.compared for one in results):
        yield "nothing could be compared"


def _show(recording: Recording, requests: Sequence[RecordedRequest], as_json: bool) -> None:
    told = _told(recording, requests)
    if as_json:
        print(json.dumps(told))
        return
    print(f"recording of process {told['pid']}, {told['records']} records from {told['from']} to {told['to']}")
    for facts in told["runtimes"]:
        print(f"runtime {facts['runtime']}: {facts['package']} {facts['version']} on {facts['board']}")
    for event in told["stages"]:
        print(f"{event['time']}  stage {event['stage']} {event['what']}")
    for one in told["requests"]:
        state = "closed" if one["closed"] else "open at the end"
        problem = f"; {one['problem']}" if one["problem"] else ""
        print(f"{one['time']}  request {one['request']} {one['mode']}: {one['messages']} messages, {state}{problem}")
        for turn in one["turns"]:
            words = f"{turn['transcript']!r} → {turn['text']!r}, " if turn["transcript"] or turn["text"] else ""
            audio = f"{turn['audio_bytes'] // 2} samples, " if turn["audio_bytes"] else ""
            print(f"    turn {turn['turn']}: {words}{audio}{turn['error'] or turn['finish'] or 'no end recorded'}")


def _told(recording: Recording, requests: Sequence[RecordedRequest]) -> dict[str, Any]:
    from dpfedge.pipeline.flight import RecordKind

    def when(at_ns: int) -> str:
        wall_ns = recording.wall_ns(at_ns)
        shown = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall_ns // 10**9))
        return f"{shown}.{wall_ns // 10**6 % 1000:03d}Z"

    names = {RecordKind.STAGE_DIED: "died", RecordKind.STAGE_READY: "ready"}
    stages = [
        {"time": when(record.at_ns), "stage": record.payload.decode(errors="replace"), "what": names[record.kind]}
        for record in recording.records
        if record.kind in names
    ]
    times = [record.at_ns for record in recording.records]
    return {
        "pid": recording.pid, "seconds": recording.seconds, "records": len(times),
        "from": when(times[0]) if times else None, "to": when(times[-1]) if times else None,
        "runtimes": [
            {name: facts.get(name) for name in ("runtime", "package", "version", "board", "audio")}
            for facts in recording.runtimes.values()
        ],
        "stages": stages,
        "requests": [_request(one, when(one.at_ns)) for one in requests],
    }  # fmt: skip


def _request(one: RecordedRequest, when: str) -> dict[str, Any]:
    turns = [
        {
            "turn": turn, "transcript": found.transcript, "text": found.text, "audio_bytes": len(found.audio),
            "finish": found.finish, "error": found.error,
        }
        for turn, found in sorted(one.turns.items())
    ]  # fmt: skip
    mode = one.mode.name.lower() if one.mode is not None else None
    return {
        "time": when, "request": f"{one.key:016x}", "mode": mode, "messages": len(one.given), "closed": one.closed,
        "problem": one.problem, "turns": turns,
    }  # fmt: skip
