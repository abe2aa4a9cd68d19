# SPDX-License-Identifier: Apache-2.0
"""The runtime for synchronous callers: an asynchronous one whose coroutines run on a loop in a thread of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from dpfedge.pipeline.prepare import Prepared, prepare
from dpfedge.runtime.looped import Looped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dpfedge.pipeline.events import Event
    from dpfedge.runtime.asynchronous import AsyncRuntime

__all__ = ["Runtime", "SyncRuntime"]


class SyncRuntime(Looped):
    """Base of `Runtime`; `opener` makes the asynchronous runtime."""

    def ask(self, audio: Any, **options: Any) -> Any:
        """One spoken question (bytes or a file) → the whole answer; see `AsyncRuntime.ask`."""
        return self._call(self._inner.ask(audio, **options))

    def stream(self, audio: Any, **options: Any) -> Iterator[Event]:
        """As `ask`, event by event."""
        return self._iterate(self._inner.stream(audio, **options))

    def transcribe(self, audio: bytes, *arguments: Any, **options: Any) -> Iterator[Event]:
        """See `AsyncRuntime.transcribe`."""
        return self._iterate(self._inner.transcribe(audio, *arguments, **options))

    def chat(self, messages: Any, *arguments: Any, **options: Any) -> Iterator[Event]:
        """See `AsyncRuntime.chat`."""
        return self._iterate(self._inner.chat(messages, *arguments, **options))

    def speak(self, text: str, **options: Any) -> Iterator[Event]:
        """See `AsyncRuntime.speak`."""
        return self._iterate(self._inner.speak(text, **options))


class Runtime(SyncRuntime):
    """A running pipeline for synchronous callers; the same methods as AsyncRuntime, its iterators are plain ones."""

    @staticmethod
    async def opener(prepared: Prepared) -> AsyncRuntime:
        """The asynchronous runtime, imported while the stages' parent warms up."""
        from dpfedge.runtime.asynchronous import AsyncRuntime

        return await AsyncRuntime.open(prepared)

    @classmethod
    def open(
        cls,
        package: str | Path | Prepared,
        *,
        board: str = "auto",
        check: Literal["fast", "full"] = "full",
        allow_unsigned: bool = False,
        trust: Sequence[Path] | None = None,
    ) -> Self:
        """Bind `package` to `board`, start its stages, and return when every one is warm; use it as a context manager.

        BindError, BoardError or PackageError as found, SignatureError unless a key in one of the directories `trust`
        has signed it or `allow_unsigned` is set; StageError names a stage that cannot start. A package that `prepare`
        bound before is taken over as it is.
        """
        if isinstance(package, Prepared):
            prepared = package
        else:
            prepared = prepare(package, board=board, check=check, allow_unsigned=allow_unsigned, trust=trust)
        try:
            return cls._open(prepared)
        except BaseException:
            prepared.close()
            raise
