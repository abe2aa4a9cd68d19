# SPDX-License-Identifier: Apache-2.0
"""What a request may say of its audio, of the llm's choices and of its time; records, checked by who they go to."""

from __future__ import annotations

from dpfedge.errors import UsageError
from dpfedge.limits import DEADLINE_MAX_S
from dpfedge.records import dataclass

__all__ = ["AudioFormat", "Limits", "Sampling"]


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


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a request may take, and how it stands to others; UsageError when a value is out of range."""

    deadline_s: float | None = None
    """Seconds from now; then it fails with DeadlineExceeded, which names the stage that had it. None: no limit."""
    urgency: int = 3
    """0 (first) to 7, as in RFC 9218; stages take the steps of more urgent requests first."""

    def __post_init__(self) -> None:
        if not 0 <= self.urgency <= 7:
            raise UsageError("urgency is out of range", where="limits", found=self.urgency, allowed="0 (first) to 7")
        if self.deadline_s is not None and not 0 < self.deadline_s < DEADLINE_MAX_S:
            allowed = f"above 0, below {DEADLINE_MAX_S} s"
            raise UsageError("the deadline is out of range", where="limits", found=self.deadline_s, allowed=allowed)
