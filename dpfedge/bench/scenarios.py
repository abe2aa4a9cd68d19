# SPDX-License-Identifier: Apache-2.0
"""What `dpfedge bench` measures, one function per question an engineer asks; each returns series of numbers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dpfedge.bench.measure import Series
from dpfedge.bench.speech import Question
from dpfedge.bench.voice_turn import TurnTimes, voice_turn
from dpfedge.binding import bind_here
from dpfedge.package import open_package
from dpfedge.pipeline.events import AudioChunk, TurnDone
from dpfedge.pipeline.processes import cpu_seconds
from dpfedge.runtime import AsyncRuntime, AudioFormat, Sampling
from dpfedge.store import locate

__all__ = [
    "Progress",
    "bind_times",
    "chat_times",
    "cold_start",
    "copies",
    "idle",
    "memory",
    "speech_factors",
    "turn_series",
    "turns",
]

Progress = Callable[[str], None]


def bind_times(package: Path, board: str, rounds: int) -> list[Series]:
    """Open the package, probe the machine and choose a target; in this process, after imports."""
    whole, path = [], locate(package).path
    for _ in range(rounds):
        started = time.perf_counter_ns()
        bind_here(open_package(path, check="fast"), board).package.close()
        whole.append((time.perf_counter_ns() - started) / 1e6)
    return [Series("bind", "ms", tuple(whole))]


def cold_start(
    package: Path,
    board: str,
    rounds: int,
    progress: Progress,
    *,
    allow_unsigned: bool = False,
    trust: Sequence[Path] | None = None,
) -> list[Series]:
    """From the start of a new process to every stage warm, imports and the check of the signature included."""
    trusted = ["unsigned" if allow_unsigned else "signed", *map(str, trust or ())]
    samples = []
    for index in range(rounds):
        progress(f"cold start {index + 1}/{rounds}")
        samples.append(_one_cold_start([str(package), board, *trusted]))
    return [Series("cold start to ready", "ms", tuple(samples))]


def _one_cold_start(arguments: Sequence[str]) -> float:
    started = time.monotonic_ns()
    command = [sys.executable, "-m", "dpfedge.bench.cold", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return (int(done.stdout) - started) / 1e6


async def turns(runtime: AsyncRuntime, question: Question, count: int, progress: Progress) -> list[TurnTimes]:
    """`count` spoken turns, one after the other."""
    times = []
    for index in range(count):
        progress(f"voice turn {index + 1}/{count}")
        times.append(await voice_turn(runtime, question))
    return times


def turn_series(times: list[TurnTimes]) -> list[Series]:
    """The waiting times a person notices, from the last sample of speech and from the endpoint decision."""
    spoken = [turn for turn in times if turn.first_audio_ns]
    return [
        Series(
            "end of speech → first audio", "ms", tuple(turn.since_speech_ms(turn.first_audio_ns) for turn in spoken)
        ),
        Series(
            "endpoint → first audio", "ms", tuple((turn.first_audio_ns - turn.endpoint_ns) / 1e6 for turn in spoken)
        ),
        Series("end of speech → transcript", "ms", tuple(turn.since_speech_ms(turn.transcript_ns) for turn in spoken)),
        Series("end of speech → first text", "ms", tuple(turn.since_speech_ms(turn.first_text_ns) for turn in spoken)),
    ]


async def chat_times(runtime: AsyncRuntime, prompt: str, tokens: int, rounds: int) -> list[Series]:
    """Time to first token and decode speed of the llm for one typed question."""
    first, speed, prefill = [], [], []
    for _ in range(rounds):
        async for event in runtime.chat([{"role": "user", "content": prompt}], Sampling(max_tokens=tokens)):
            if isinstance(event, TurnDone):
                report = event.report["llm"]
                first.append(float(report["ttft_ms"]))
                speed.append(float(report["tokens_per_s"]))
                prefill.append(float(report["prefill_ms"]))
    return [
        Series("time to first token", "ms", tuple(first)),
        Series("decode", "tokens/s", tuple(speed)),
        Series("prefill", "ms", tuple(prefill)),
    ]


async def speech_factors(runtime: AsyncRuntime, question: Question, words: str, rounds: int) -> list[Series]:
    """Real-time factors of recognition and of speech: processing time over length of the audio."""
    heard, said = [], []
    for _ in range(rounds):
        started = time.monotonic_ns()
        async for _event in runtime.transcribe(question.pcm.tobytes(), AudioFormat("pcm_s16le", 16000)):
            pass
        heard.append((time.monotonic_ns() - started) / 1e9 / question.seconds)
        started, length = time.monotonic_ns(), 0.0
        async for event in runtime.speak(words):
            if isinstance(event, AudioChunk):
                length += len(event.samples) / event.rate
        said.append((time.monotonic_ns() - started) / 1e9 / length)
    return [
        Series("recognition real-time factor", "s/s", tuple(heard)),
        Series("speech real-time factor", "s/s", tuple(said)),
    ]


def copies(before: dict[str, Any], after: dict[str, Any], count: int) -> dict[str, Any]:
    """Copies of tensor bytes between stages per turn, from the links' counters."""
    total = sum(after["links"][name]["copies"] - before["links"][name]["copies"] for name in after["links"])
    dropped = sum(after["links"][name]["dropped"] - before["links"][name]["dropped"] for name in after["links"])
    return {"copies_per_turn": total / count, "dropped": dropped}


def memory(status: dict[str, Any]) -> dict[str, Any]:
    """RSS and PSS of each process, and their PSS together, in MB."""
    processes = {**status["stages"], "server": status["server"], "zygote": status["zygote"]}
    table = {
        name: {"rss_mb": info["rss_bytes"] / 1e6, "pss_mb": info["pss_bytes"] / 1e6}
        for name, info in processes.items()
        if "pss_bytes" in info
    }
    return {"processes": table, "pss_mb": sum(row["pss_mb"] for row in table.values())}


async def idle(runtime: AsyncRuntime, seconds: float) -> dict[str, float]:
    """Share of one core that all processes use together while loaded and idle."""
    status = runtime.status()
    pids = [info["pid"] for info in (*status["stages"].values(), status["server"], status["zygote"])]
    before = sum(cpu_seconds(pid) for pid in pids)
    await asyncio.sleep(seconds)
    used = sum(cpu_seconds(pid) for pid in pids) - before
    return {"seconds": seconds, "cores": used / seconds}
