# SPDX-License-Identifier: Apache-2.0
"""What the faces need from a runtime: the shape of `dpfedge.runtime.AsyncRuntime`, as protocols.

Nothing here runs a model or speaks HTTP; anything with this shape can be served.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from dpfedge.pipeline.events import Event
from dpfedge.runtime import AudioFormat, Limits, Sampling

__all__ = ["ServedRuntime", "ServedSession"]


class ServedSession(Protocol):
    """A conversation of many turns."""

    @property
    def history(self) -> Sequence[Mapping[str, str]]:
        """The conversation so far as chat messages."""

    async def push(self, pcm: bytes | memoryview) -> None:
        """Hand over samples in the format given at `converse`; any length."""

    async def commit(self) -> None:
        """End the utterance now."""

    async def clear(self) -> None:
        """Forget what was heard of the utterance."""

    async def respond(self, options: Mapping[str, Any] | None = None) -> None:
        """Answer now, without speech before it."""

    async def say(self, text: str) -> None:
        """Add a text item of the user."""

    async def interrupt(self, heard: str | None = None) -> None:
        """Cancel the answer being given; `heard` are the words of it that reached the ear."""

    def events(self) -> AsyncIterator[Event]:
        """Everything that happens, in order; ends after the session was closed."""


class ServedRuntime(Protocol):
    """A package bound to a board with every stage warm."""

    @property
    def name(self) -> str:
        """The package's name."""

    @property
    def ready(self) -> bool:
        """Whether every stage is warm now."""

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What each stage says of itself, for example `facts["voice"]["rate"]`."""

    async def wait_ready(self) -> None:
        """Return when every stage is warm; StageError names one that cannot be."""

    def transcribe(
        self,
        audio: bytes | AsyncIterable[bytes],
        format: AudioFormat = ...,
        *,
        language: str | None = None,
        limits: Limits = ...,
    ) -> AsyncIterator[Event]:
        """Speech to text."""

    def chat(
        self, messages: Sequence[Mapping[str, Any]], sampling: Sampling = ..., *, limits: Limits = ...
    ) -> AsyncIterator[Event]:
        """Messages to text."""

    def speak(self, text: str, *, speed: float = 1.0, limits: Limits = ...) -> AsyncIterator[Event]:
        """Text to speech."""

    async def converse(
        self,
        format: AudioFormat = ...,
        *,
        history: Sequence[Mapping[str, str]] = ...,
        instructions: str | None = None,
        vad: Mapping[str, Any] | None = None,
        sampling: Sampling = ...,
        spoken: bool = True,
    ) -> ServedSession:
        """A session of spoken turns."""

    async def end(self, session: Any) -> None:
        """Close a session that `converse` made and free its place."""

    async def close(self) -> None:
        """End every stage."""

    def urgency(self, wanted: int) -> int:
        """What a request of that urgency would get now."""

    def status(self, *, memory: bool = True) -> dict[str, Any]:
        """Stages, links and requests as they are now; `memory`: what each process holds, too."""
