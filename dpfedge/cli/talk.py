# SPDX-License-Identifier: Apache-2.0
"""`dpfedge talk`: a conversation by microphone and loudspeaker."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import ExitStack
from pathlib import Path

from dpfedge.cli.trusting import add_trust_arguments, trust_options
from dpfedge.pipeline.prepare import prepare

NAME = "talk"
HELP = "Hold a conversation by microphone and loudspeaker; Ctrl-C ends it.\n\nexample: dpfedge talk voice.dpfbin"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("package", type=Path, help="a .dpfbin file, or the name of an installed package")
    parser.add_argument("--board", default="auto", help="board id, or `auto`")
    add_trust_arguments(parser)
    parser.add_argument("--input", help="microphone, by name (default: the system's)")
    parser.add_argument("--output", help="loudspeaker, by name (default: the system's)")


def run(args: argparse.Namespace) -> int:
    """Talk until Ctrl-C; exit code 5 without a sound system."""
    from dpfedge.cli.sound import SoundCard, converse
    from dpfedge.runtime import AsyncRuntime

    # before the sound card: a package that is refused is refused on every machine, and the stages' parent warms up
    prepared = prepare(args.package, board=args.board, own=True, **trust_options(args))
    with ExitStack() as refused:
        refused.callback(prepared.close)
        card = SoundCard(args.input, args.output)
        refused.pop_all()

    async def talk() -> None:
        async with await AsyncRuntime.open(prepared) as runtime:
            await converse(runtime, card)

    asyncio.run(talk())
    return 0
