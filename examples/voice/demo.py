# SPDX-License-Identifier: Apache-2.0
"""The demo: serves a package, speaks questions to it at a microphone's pace, saves the answers, shows the time.

Usage: python examples/voice/demo.py build/voice.dpfbin [--board host] [--questions 3]
It starts `dpfedge serve` and talks to it with the official openai client, as any program could.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import subprocess
import sys
import time
import wave
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from openai import AsyncOpenAI

HERE = Path(__file__).parent
RATE = 24000  # of the realtime API, both ways
PIECE = RATE // 50 * 2  # bytes of 20 ms


@dataclass
class Turn:
    """One question and its answer; instants in seconds of the monotonic clock."""

    asked: str
    heard: str = ""
    answer: str = ""
    audio: bytearray = field(default_factory=bytearray)
    marks: dict[str, float] = field(default_factory=dict)

    def mark(self, name: str) -> None:
        """Note the first time something happens."""
        self.marks.setdefault(name, time.monotonic())


def main() -> int:
    """Serve, ask, show."""
    parser = argparse.ArgumentParser()
    parser.add_argument("package", type=Path)
    parser.add_argument("--board", default="auto")
    parser.add_argument("--questions", type=int, default=3)
    parser.add_argument("--port", type=int, default=8973)
    args = parser.parse_args()
    questions = [line for line in (HERE / "questions.txt").read_text().splitlines() if line][: args.questions]
    started = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "dpfedge",
        "serve",
        str(args.package),
        "--board",
        args.board,
        "--port",
        str(args.port),
        "--no-socket",
    ]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        url = f"http://127.0.0.1:{args.port}"
        if not wait_ready(url, server):
            return 1
        print(f"ready to talk {time.monotonic() - started:.2f} s after the command was typed\n")
        return asyncio.run(talk(url, questions, args.package.parent))
    finally:
        server.terminate()
        server.wait(timeout=10)


def wait_ready(url: str, server: subprocess.Popen[str]) -> bool:
    """Poll /readyz until every stage is warm."""
    while server.poll() is None:
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return True
        except httpx.ConnectError:
            pass
        time.sleep(0.02)
    assert server.stderr is not None
    print(server.stderr.read(), file=sys.stderr)
    return False


async def talk(url: str, questions: list[str], out: Path) -> int:
    """Every question in one conversation."""
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    model = (await client.models.list()).data[0].id
    pcm = [trim(await speak(client, question)) for question in questions]
    for number, samples in enumerate(pcm, 1):
        save(out / f"question{number}.wav", samples)
    good = 0
    async with client.realtime.connect(model=model) as connection:
        for number, (question, samples) in enumerate(zip(questions, pcm, strict=True), 1):
            turn = await ask(connection, question, samples)
            save(out / f"answer{number}.wav", turn.audio)
            show(number, turn, out / f"answer{number}.wav")
            await asyncio.sleep(len(turn.audio) / 2 / RATE)  # a person listens before asking on
            good += bool(turn.answer and turn.audio)
    print(f"{good} of {len(questions)} spoken questions got a spoken answer")
    return 0 if good == len(questions) else 1


async def speak(client: AsyncOpenAI, text: str) -> bytes:
    """There is no microphone in a demo that must run anywhere: the package's own voice asks."""
    answer = await client.audio.speech.create(model="voice", voice="default", input=text, response_format="pcm")
    return answer.content


def trim(pcm: bytes) -> bytes:
    """Without the silence behind the last word, so that "end of the question" is where speech ends."""
    end = len(pcm)
    while end > PIECE and max(abs(value) for value in memoryview(pcm[end - PIECE : end]).cast("h")) < 300:
        end -= PIECE
    return pcm[:end]


async def ask(connection, question: str, pcm: bytes) -> Turn:  # type: ignore[no-untyped-def]
    """One turn: push the question while it is spoken, collect the answer while it comes."""
    turn = Turn(question)
    pushing = asyncio.create_task(push(connection, turn, pcm))
    async for event in connection:
        if event.type == "input_audio_buffer.speech_stopped":
            turn.mark("endpoint decided")
        elif event.type == "conversation.item.input_audio_transcription.completed":
            turn.mark("words recognised")
            turn.heard = event.transcript
        elif event.type == "response.output_audio_transcript.delta":
            turn.mark("first words of the answer")
            turn.answer += event.delta
        elif event.type == "response.output_audio.delta":
            turn.mark("first sound of the answer")
            turn.audio += base64.b64decode(event.delta)
        elif event.type == "error":
            raise RuntimeError(event.error.message)
        elif event.type == "response.done":
            turn.mark("answer complete")
            break
    pushing.cancel()
    return turn


async def push(connection, turn: Turn, pcm: bytes) -> None:  # type: ignore[no-untyped-def]
    """20 ms at a time, then silence, as a microphone delivers it."""
    start, index = time.monotonic(), 0
    while True:
        piece = pcm[index * PIECE : (index + 1) * PIECE]
        await asyncio.sleep(max(0.0, start + (index + 1) * 0.02 - time.monotonic()))
        if piece:
            turn.marks["end of the question"] = time.monotonic()
        audio = base64.b64encode(piece.ljust(PIECE, b"\0")).decode()
        await connection.input_audio_buffer.append(audio=audio)
        index += 1


def show(number: int, turn: Turn, path: Path) -> None:
    """The turn and where its time went."""
    misheard = "" if plain(turn.heard) == plain(turn.asked) else "   (misheard)"
    print(f"question {number}: {turn.asked}\n  heard:  {turn.heard}{misheard}\n  answer: {turn.answer}")
    end = turn.marks.pop("end of the question")
    before = end
    for name, instant in sorted(turn.marks.items(), key=lambda item: item[1]):
        print(f"  {1000 * (instant - end):7.0f} ms  (+{1000 * (instant - before):4.0f})  {name}")
        before = instant
    print(f"  {len(turn.audio) / 2 / RATE:7.2f} s   of speech in {path}\n")


def plain(words: str) -> str:
    """Words as they sound: without case and punctuation."""
    return "".join(char for char in words.lower().replace("tyre", "tire") if char.isalnum())


def save(path: Path, pcm: bytes | bytearray) -> None:
    """A WAV file anybody can play."""
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(bytes(pcm))


if __name__ == "__main__":
    sys.exit(main())
