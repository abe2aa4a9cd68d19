# SPDX-License-Identifier: Apache-2.0
"""A recorded request of a drawn graph given to it again: the same messages in, what its stages gave out.

It compares nothing; `replay.py` does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dpfedge.errors import DpfError, StageError
from dpfedge.pipeline.engine import Engine
from dpfedge.pipeline.flow import Flow
from dpfedge.runtime.recorded import Given, Outcome, RecordedRequest
from dpfedge.stage.api import Kind
from dpfedge.tensors import DTYPES, TensorSpec

if TYPE_CHECKING:
    from dpfedge.backend.api import Array

__all__ = ["again_drawn"]

_OWN = frozenset({"mode", "route", "urgency", "deadline_ns"})
"""What the runtime itself puts into START; a deadline of the recording has passed long since."""


async def again_drawn(engine: Engine, request: RecordedRequest, patience_s: float) -> dict[int, Outcome]:
    """The request once more; StageError when nothing happens for `patience_s`."""
    starts = {one.stage: request.start(one.stage) for one in request.given if one.kind is Kind.START}
    options = {
        stage: {name: value for name, value in start.items() if name not in _OWN} for stage, start in starts.items()
    }
    urgency = int(next(iter(starts.values()))["urgency"])
    outcome = Outcome()
    async with Flow(engine, options, deadline_s=None, urgency=urgency) as flow:
        await flow.start()
        reading = asyncio.create_task(_read(flow, outcome))
        try:
            for one in request.given:
                await asyncio.wait_for(_give(flow, one), patience_s)
            await asyncio.wait_for(reading, patience_s)
        except TimeoutError:
            what = f"nothing happened for {patience_s:g} s"
            raise StageError(what, where=f"request {request.key:016x}") from None
        except DpfError:
            await asyncio.wait({reading})  # it ended before all was given; why is the outcome's to say
    return {0: outcome}


async def _give(flow: Flow, one: Given) -> None:
    place = f"{one.stage}.{one.port}"
    if one.cancel_before:
        flow.cancel(before=one.cancel_before)
    elif one.kind is Kind.DATA and one.told is not None:
        await flow.send(place, _payload(one), turn=one.turn, captured_ns=one.told.captured_ns)
    elif one.kind is Kind.FLUSH:
        await flow.flush(place)
    elif one.kind is Kind.END:
        await flow.finish(place)


def _payload(one: Given) -> bytes | Array:
    assert one.told is not None
    dtype = DTYPES[one.told.dtype]
    if dtype == "bytes":
        return one.payload
    import numpy as np

    shape: tuple[Any, ...] = one.told.shape[: one.told.rank]
    return np.frombuffer(one.payload, TensorSpec("recorded", dtype).numpy).reshape(shape)


async def _read(flow: Flow, outcome: Outcome) -> None:
    try:
        async for output in flow.outputs():
            if output.kind is not Kind.DONE:
                place = f"{output.stage}.{output.port}" if output.port else output.stage
                outcome.outputs.setdefault(place, []).append(output.array.tobytes())
        outcome.finish = "stop"
    except DpfError as error:
        outcome.finish, outcome.error = "failed", f"{type(error).__name__}: {error.what}"
