# SPDX-License-Identifier: Apache-2.0
"""Turns of dpfedge and of the plain baseline, interleaved in one run; ratios of neighbouring rounds out."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfedge.bench.measure import median_ratio
from dpfedge.bench.peer import PlainPeer, plain_setup
from dpfedge.bench.scenarios import Progress
from dpfedge.bench.speech import Question
from dpfedge.bench.voice_turn import TurnTimes, voice_turn
from dpfedge.runtime import AsyncRuntime

__all__ = ["beside_plain"]


async def beside_plain(
    runtime: AsyncRuntime,
    pipeline: Mapping[str, Any],
    question: Question,
    rounds: int,
    *,
    threads: int,
    progress: Progress,
) -> dict[str, Any]:
    """Interleaved turns; the baseline uses the package's own prompt, endpoint silence and clause lengths."""
    silence_ms = int(runtime.facts["decoder"]["endpoint_ms"])
    with tempfile.TemporaryDirectory() as folder:
        pcm = Path(folder) / "question.pcm"
        pcm.write_bytes(question.pcm.tobytes())
        progress("baseline: load")
        peer = await asyncio.to_thread(PlainPeer, plain_setup(pipeline, threads))
        try:
            ours, theirs = [], []
            for index in range(rounds):
                progress(f"baseline: round {index + 1}/{rounds}")
                ours.append(await voice_turn(runtime, question))
                theirs.append(await asyncio.to_thread(peer.turn, pcm, silence_ms))
            memory = await asyncio.to_thread(peer.memory)
        finally:
            await asyncio.to_thread(peer.close)
    return {"name": "plain script", "rows": _rows(ours, theirs), "ready_ms": peer.ready_ms, "memory": memory}


def _rows(ours: Sequence[TurnTimes], theirs: Sequence[TurnTimes]) -> list[dict[str, Any]]:
    instants = {"transcript": "transcript_ns", "first text": "first_text_ns", "first audio": "first_audio_ns"}
    return [
        _row(f"end of speech → {name}", _since(ours, field), _since(theirs, field)) for name, field in instants.items()
    ]


def _since(turns: Sequence[TurnTimes], field: str) -> list[float]:
    return [turn.since_speech_ms(getattr(turn, field)) for turn in turns]


def _row(name: str, ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    middle = len(ours) // 2
    return {
        "name": name, "unit": "ms", "ours": sorted(ours)[middle], "theirs": sorted(theirs)[middle],
        "ratio": median_ratio(ours, theirs), "ours_samples": list(ours), "theirs_samples": list(theirs),
    }  # fmt: skip
