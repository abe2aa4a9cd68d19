# SPDX-License-Identifier: Apache-2.0
"""The same on an event loop, event by event: python examples/embed/main_async.py build/voice.dpfbin question.wav"""

import asyncio
import sys

from dpfedge import AsyncRuntime
from dpfedge.pipeline.events import AudioChunk, TextDelta, Transcript


async def main(package: str, question: str) -> None:
    """Print what happens while it happens."""
    async with await AsyncRuntime.open(package) as runtime:
        samples = 0
        async for event in runtime.stream(question):
            match event:
                case Transcript():
                    print("question:", event.text)
                case TextDelta():
                    print(event.text, end="", flush=True)
                case AudioChunk():
                    samples += len(event.samples)  # a view into the link: play it now, or copy it
        print(f"\nspoken: {samples} samples")


asyncio.run(main(*sys.argv[1:]))
