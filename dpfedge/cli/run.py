# SPDX-License-Identifier: Apache-2.0
"""`dpfedge run`: one spoken question from a file, the spoken answer into a file, and where the time went."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dpfedge.cli.observing import add_observe_arguments
from dpfedge.cli.trusting import add_trust_arguments, trust_options
from dpfedge.cli.writing import writing
from dpfedge.errors import UsageError
from dpfedge.pipeline.prepare import is_pipeline_file, prepare
from dpfedge.runtime import Runtime

if TYPE_CHECKING:
    from dpfedge.runtime import Answer

NAME = "run"
HELP = (
    "Ask a spoken question from an audio file and write the spoken answer; or one request through a drawn graph.\n\n"
    "examples:\n"
    "  dpfedge run voice.dpfbin --audio question.wav --out answer.wav\n"
    "  dpfedge run camera-ocr.dpfbin --set camera.source=sign.mp4 --set 'llm.question=Which platform?'\n"
    "  dpfedge run pipeline.yaml --send loudness.samples=@samples.raw"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "package", type=Path, help="a .dpfbin file, the name of an installed package, or a pipeline file"
    )
    parser.add_argument("--audio", type=Path, help="the question: any audio file")
    parser.add_argument("--out", type=Path, help="where the answer's speech goes (WAV)")
    graph = parser.add_argument_group("drawn graphs")
    graph.add_argument(
        "--set", action="append", default=[], metavar="STAGE.OPTION=VALUE", help="an option of the request"
    )
    graph.add_argument(
        "--send",
        action="append",
        default=[],
        metavar="STAGE.PORT=TEXT",
        help="one input, in order; @FILE for its bytes",
    )
    graph.add_argument(
        "--deadline-ms", type=int, default=0, help="what the request may take (0: the pipeline's budget)"
    )
    parser.add_argument("--board", default="auto", help="board id, or `auto`")
    add_trust_arguments(parser)
    add_observe_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Ask and answer; exit code 1 when no speech was found."""
    if args.audio is None:
        return _graph(args)
    if given := [
        flag
        for flag, value in (("--set", args.set), ("--send", args.send), ("--deadline-ms", args.deadline_ms))
        if value
    ]:
        raise UsageError("only for drawn graphs", where=given[0], found="--audio beside it", remedy="leave out one")
    if is_pipeline_file(args.package):
        remedy = "give its inputs with --send STAGE.PORT=@FILE"
        raise UsageError("a drawn graph takes no --audio", where=str(args.package), remedy=remedy)
    if args.audio.is_dir() or not args.audio.exists():  # a pipe is a file, too: --audio <(…)
        raise UsageError("no such audio file", where="--audio", found=str(args.audio))
    if args.out and not args.out.absolute().parent.is_dir():
        raise UsageError("no such folder", where="--out", found=str(args.out.parent), remedy="make the folder first")
    if args.out and args.out.is_dir():
        raise UsageError("is a folder", where="--out", found=str(args.out), allowed="a file")
    prepared = prepare(args.package, board=args.board, own=True, **trust_options(args))
    with Runtime.open(prepared) as runtime:
        answer = runtime.ask(args.audio)
    if args.json or answer.question:
        print(_json(answer) if args.json else _text(answer))
    if args.out and len(answer.samples):
        with writing(args.out, "the answer's speech"):
            answer.save(args.out)
    if not answer.question:
        print("dpfedge: no speech was found in the audio", file=sys.stderr)
        return 1
    return 0


def _graph(args: argparse.Namespace) -> int:
    from dpfedge.cli.run_graph import is_drawn, run_graph

    if args.out is not None:
        raise UsageError("only for conversations", where="--out", remedy="outputs are printed; --json for programs")
    if not is_drawn(args.package):
        raise UsageError("a conversation needs speech", where=str(args.package), remedy="add --audio FILE")
    return run_graph(args)


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
