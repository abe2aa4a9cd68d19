# SPDX-License-Identifier: Apache-2.0
"""`dpfedge bench`: measures a package on this board; a table for people, JSON for programs."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from dpfedge.cli.trusting import add_trust_arguments, trust_options
from dpfedge.cli.writing import writing
from dpfedge.errors import UsageError

NAME = "bench"
HELP = (
    "Measure a package on this board: bind, cold start, spoken turns, the llm, recognition, speech, memory, idle.\n\n"
    "example: dpfedge bench voice.dpfbin --board host --turns 50 --baseline plain --json bench.json"
)
WORDS = "What is the capital of France?"
SENTENCE = "The next charging station is twelve kilometres away, just before the bridge."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("package", type=Path, help="a .dpfbin file, or the name of an installed package")
    parser.add_argument("--board", default="auto", help="board id, or `auto`")
    parser.add_argument("--turns", type=int, default=20, help="spoken turns (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of everything else (default: %(default)s)")
    parser.add_argument(
        "--idle",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long idleness is watched (default: %(default)s)",
    )
    parser.add_argument(
        "--question", type=Path, help="a WAV recording of the question (default: the package's voice asks)"
    )
    parser.add_argument("--baseline", choices=["plain"], help="measure the plain single-process script beside it")
    add_trust_arguments(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure, print, write."""
    from rich.console import Console

    from dpfedge.bench.report import show

    _check(args)
    errors = Console(stderr=True)
    with errors.status("bench") as status:
        result = measure(args, status.update if errors.is_terminal else lambda text: None)
    show(result, Console(file=sys.stdout))
    if args.json:
        with writing(args.json, "the figures"):
            args.json.write_text(json.dumps(result, indent=1))
    return 0


def _check(args: argparse.Namespace) -> None:
    """Before minutes of measuring: numbers that measure something, a question, and a place for the figures."""
    for flag, value in (("--turns", args.turns), ("--rounds", args.rounds), ("--idle", args.idle)):
        if not value > 0:
            raise UsageError("nothing would be measured", where=flag, found=value, allowed="more than 0")
    if args.question and not args.question.is_file():
        raise UsageError("no such recording", where="--question", found=str(args.question))
    if args.json:
        with writing(args.json, "the figures"):
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.open("a").close()


def measure(args: argparse.Namespace, progress: Any) -> dict[str, Any]:
    """Everything in one run; see `dpfedge.bench.scenarios` for what each number means."""
    from dpfedge.bench import scenarios
    from dpfedge.pipeline.prepare import prepare

    progress("bind")
    prepare(args.package, board=args.board, **trust_options(args)).close()  # a refusal is told here, not by a child
    series = scenarios.bind_times(args.package, args.board, 40 * args.rounds)
    series += scenarios.cold_start(args.package, args.board, args.rounds, progress, **trust_options(args))
    return asyncio.run(_measure_running(args, series, progress))


async def _measure_running(args: argparse.Namespace, series: list[Any], progress: Any) -> dict[str, Any]:
    from dpfedge.bench import scenarios
    from dpfedge.bench.report import document
    from dpfedge.bench.speech import from_wav, spoken
    from dpfedge.runtime import AsyncRuntime

    opening = AsyncRuntime.open(args.package, board=args.board, **trust_options(args))
    async with await opening as runtime:
        question = from_wav(args.question) if args.question else await spoken(runtime, WORDS)
        await scenarios.turns(runtime, question, 2, progress)  # warm-up, not counted
        before = runtime.status()
        times = await scenarios.turns(runtime, question, args.turns, progress)
        after = runtime.status()
        series += scenarios.turn_series(times)
        progress("llm, recognition, speech")
        series += await scenarios.chat_times(runtime, WORDS, 64, args.rounds)
        series += await scenarios.speech_factors(runtime, question, SENTENCE, args.rounds)
        progress("idle")
        extra = {
            "package": runtime.name,
            "board": after["board"],
            "question": {
                "words": question.words,
                "heard": times[-1].transcript,
                "answer": times[-1].text,
                "seconds": question.seconds,
            },
            "copies": scenarios.copies(before, after, args.turns),
            "memory": scenarios.memory(runtime.status()),
            "idle": await scenarios.idle(runtime, args.idle),
        }
        if args.baseline:
            extra["baseline"] = await _beside(args, runtime, question, progress)
    return document(series, extra)


async def _beside(args: argparse.Namespace, runtime: Any, question: Any, progress: Any) -> dict[str, Any]:
    from dpfedge.bench.compare import beside_plain

    return await beside_plain(
        runtime, runtime.pipeline, question, args.turns, threads=runtime.threads("llm"), progress=progress
    )
