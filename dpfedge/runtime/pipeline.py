# SPDX-License-Identifier: Apache-2.0
"""Any drawn graph for embedders: a package or a pipeline file in, requests through its stages out.

Conversations, transcripts and speech are `AsyncRuntime`'s; both drive the same engine.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dpfedge.errors import StageDied, UsageError
from dpfedge.pipeline.engine import Engine
from dpfedge.pipeline.flow import Flow, Output
from dpfedge.pipeline.observer import Observe
from dpfedge.pipeline.prepare import Prepared, PreparedFile, is_pipeline_file, prepare, prepare_file
from dpfedge.pipeline.shortage import beside
from dpfedge.runtime.dispatcher import Dispatcher
from dpfedge.runtime.options import Limits
from dpfedge.runtime.starting import started
from dpfedge.runtime.synchronous import SyncRuntime

if TYPE_CHECKING:
    from dpfedge.backend.api import Array
    from dpfedge.stage.ports import Port

__all__ = ["AsyncPipeline", "Pipeline", "Request"]


class AsyncPipeline:
    """A running graph, for one event loop. Make it with `open`."""

    def __init__(self, engine: Engine, dispatcher: Dispatcher) -> None:
        self._engine, self._dispatcher = engine, dispatcher
        dispatcher.observer = engine.observer

    @classmethod
    async def open(
        cls,
        path: str | Path | Prepared | PreparedFile,
        *,
        board: str = "auto",
        observe: Observe | None = None,
        **options: Any,
    ) -> Self:
        """Start the stages of a package, or of a pipeline file (`.yaml`); returns when every one is warm.

        `options` are those of `AsyncRuntime.open`; `observe` makes what is told of its work. ConfigError when the graph
        does not fit together.
        """
        dispatcher = Dispatcher(asyncio.get_running_loop())

        def start() -> Engine:
            ready = path if isinstance(path, Prepared | PreparedFile) else _prepare(path, board, options)
            return Engine.start(ready, dispatcher, observe)

        engine = await started(start)
        try:
            await asyncio.to_thread(engine.wait_ready)
        except BaseException:
            await beside(engine.stop)
            raise
        return cls(engine, dispatcher)

    async def request(
        self,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        deadline_s: float | None = None,
        urgency: int = 3,
    ) -> Flow:
        """Begin a request: `options` for each stage, seconds it may take, and its urgency (0 first … 7, RFC 9218).

        Without `deadline_s` the pipeline's own budget counts. Busy when every place is taken, StageError when a stage
        is down, UsageError when a limit is out of range.
        """
        limits = Limits(deadline_s, urgency)
        places = self._dispatcher.open
        flow = Flow(
            self._engine, options or {}, deadline_s=limits.deadline_s, urgency=limits.urgency,
            opened=places.__setitem__, closed=lambda key: places.pop(key, None),
        )  # fmt: skip
        try:
            await flow.start()
        except BaseException:
            flow.close()
            raise
        return flow

    @property
    def inputs(self) -> Mapping[str, Port]:
        """`stage.port` → what it takes, of every port that a request may feed."""
        graph = self._engine.graph
        return {f"{stage}.{name}": graph.node(stage).ports.inputs[name] for stage, name in graph.drawn.given}

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What each stage says of itself."""
        return self._engine.facts()

    def status(self, *, memory: bool = True) -> dict[str, Any]:
        """Stages, link counters and, unless it is not wanted, memory."""
        status = self._engine.status(memory=memory)
        return status | {"pipeline": self._engine.plan.name, "requests": len(self._dispatcher.open)}

    @property
    def manifest_sha256(self) -> bytes:
        """The digest of the package's manifest; empty for a pipeline file without a package."""
        bound = self._engine.plan.bound
        return b"" if bound is None else bytes(bound.package.manifest_sha256)

    async def close(self) -> None:
        """End every stage; requests that are open fail. A second call does nothing."""
        error = StageDied("the pipeline was closed", stage="runtime", where="runtime")
        for request in tuple(self._dispatcher.open.values()):
            request.fail(error)
        await beside(self._engine.stop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _prepare(path: str | Path, board: str, options: Mapping[str, Any]) -> Prepared | PreparedFile:
    if is_pipeline_file(path):
        return prepare_file(Path(path), board=board, **options)
    return prepare(path, board=board, **options)


class Request:
    """One request of a `Pipeline`, for synchronous callers; use it as a context manager. One that is dropped ends."""

    def __init__(
        self,
        call: Callable[[Any], Any],
        iterate: Callable[[Any], Iterator[Any]],
        post: Callable[[Callable[[], None]], None],
        flow: Flow,
    ) -> None:
        self._call, self._iterate, self._flow = call, iterate, flow
        weakref.finalize(self, post, flow.close).atexit = False

    def send(self, port: str, data: str | bytes | Array | Mapping[str, Any], **fields: Any) -> None:
        """See `Flow.send`."""
        self._call(self._flow.send(port, data, **fields))

    def flush(self, port: str | None = None) -> None:
        """See `Flow.flush`."""
        self._call(self._flow.flush(port))

    def finish(self, port: str | None = None) -> None:
        """See `Flow.finish`."""
        self._call(self._flow.finish(port))

    def cancel(self, *, before: int | None = None) -> None:
        """See `Flow.cancel`."""
        self._call(_later(lambda: self._flow.cancel(before=before)))

    def outputs(self) -> Iterator[Output]:
        """See `Flow.outputs`."""
        yield from self._iterate(self._flow.outputs())  # this generator keeps the request from being dropped

    @property
    def report(self) -> Mapping[str, Mapping[str, Any]]:
        """Stage → its DONE, of those that are done."""
        return self._flow.report

    def close(self) -> None:
        """See `Flow.close`."""
        with suppress(UsageError):  # the pipeline was closed, and every request with it
            self._call(_later(self._flow.close))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Pipeline(SyncRuntime):
    """A running graph for synchronous callers."""

    @staticmethod
    async def opener(prepared: Prepared | PreparedFile, observe: Observe | None = None) -> AsyncPipeline:
        """The asynchronous one."""
        return await AsyncPipeline.open(prepared, observe=observe)

    @classmethod
    def open(cls, path: str | Path, *, board: str = "auto", observe: Observe | None = None, **options: Any) -> Self:
        """See `AsyncPipeline.open`; use it as a context manager."""
        prepared = _prepare(path, board, options)
        try:
            return cls._open(prepared, observe=observe)
        except BaseException:
            prepared.close()
            raise

    @property
    def inputs(self) -> Mapping[str, Port]:
        """See `AsyncPipeline.inputs`."""
        return dict(self._inner.inputs)

    def request(self, options: Mapping[str, Mapping[str, Any]] | None = None, **limits: Any) -> Request:
        """See `AsyncPipeline.request`."""
        flow = self._call(self._inner.request(options, **limits))
        return Request(self._call, self._iterate, self._post, flow)


async def _later(function: Callable[[], None]) -> None:
    function()
