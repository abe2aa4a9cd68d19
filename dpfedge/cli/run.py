# SPDX-License-Identifier: Apache-2.0
"""`dpfedge run`: one spoken question from a file, the spoken answer into a file, and where the time went."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dpfedge.cli.trusting import add_trust_arguments, trust_options
from dpfedge.errors import UsageError
from dpfedge.runtime import Answer, Runtime

NAME = "run"
HELP = (
    "Ask one spoken question from an audio file and write the spoken answer.\n\n"
    "example: dpfedge run voice.dpfbin --audio question.wav --out answer.wav"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("package", type=Path, help="a .dpfbin file, or the name of an installed package")
    parser.add_argument("--audio", type=Path, required=True, help="the question: any audio file")
    parser.add_argument("--out", type=Path, help="where the answer's speech goes (WAV)")
    parser.add_argument("--board", default="auto", help="board id, or `auto`")
    add_trust_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Ask and answer; exit code 1 when no speech was found."""
    if not args.audio.is_file():
        raise UsageError("no such audio file", where="--audio", found=str(args.audio))
    if args.out and not args.out.absolute().parent.is_dir():
        raise UsageError("no such folder", where="--out", found=str(args.out.parent), remedy="make the folder first")
    with Runtime.open(args.package, board=args.board, **trust_options(args)) as runtime:
        answer = runtime.ask(args.audio)
    if args.out and len(answer.samples):
        answer.save(args.out)
    if args.json or answer.question:
        print(_json(answer) if args.json else _text(answer))
    if not answer.question:
        print("dpfedge: no speech was found in the audio", file=sys.stderr)
        return 1
    return 0


def _json(answer: Answer) -> str:
    seconds = len(answer.samples) / (answer.rate or 1)
    data = {
        "question": answer.question,
        "text": answer.text,
        "audio_s": seconds,
        "rate": answer.rate,
        "report": dict(answer.report),
    }
    return json.dumps(data, indent=2)


def _text(answer: Answer) -> str:
    return f"question: {answer.question}\nanswer:   {answer.text}"
