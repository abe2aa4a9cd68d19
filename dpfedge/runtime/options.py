# SPDX-License-Identifier: Apache-2.0
"""What a request may say of its audio and of the llm's choices; plain records, checked by the stages they go to."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AudioFormat", "Sampling"]


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """What bytes of audio are: raw samples, or any container found by its bytes (`encoding="container"`)."""

    encoding: str = "container"
    """`container`, `pcm_s16le` or `pcm_f32le`."""
    rate: int | None = None
    """Hz; raw samples only."""
    channels: int = 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the llm chooses tokens; None means the package's own default."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    repeat_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
