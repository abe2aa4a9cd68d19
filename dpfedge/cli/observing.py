# SPDX-License-Identifier: Apache-2.0
"""What `dpfedge serve` is told of observing itself: its flags in, what makes a runtime's observer out.

It writes nothing itself: `serve/turnlog.py`, `serve/traces.py` and `pipeline/recorder.py` do, and are imported for it.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dpfedge.errors import UsageError

if TYPE_CHECKING:
    from dpfedge.pipeline.observer import Observe, Observer
    from dpfedge.pipeline.plan import Plan
    from dpfedge.serve.turns import Consumer

__all__ = ["add_observe_arguments", "observing"]

_SECONDS = 60


def add_observe_arguments(parser: argparse.ArgumentParser) -> None:
    """`--log`, `--otel` and the flight recorder's flags."""
    group = parser.add_argument_group("observing")
    group.add_argument(
        "--log", type=Path, metavar="FILE", help="write a JSON line for each turn; `-` is stdout; SIGHUP reopens FILE"
    )
    group.add_argument("--otel", action="store_true", help="export a trace of each turn, as OTEL_* variables say")
    group.add_argument(
        "--flight-recorder", type=Path, metavar="FILE", help="keep what happened last in FILE, also through a crash"
    )
    group.add_argument(
        "--flight-seconds", type=int, metavar="N", help=f"how long the recorder remembers (default: {_SECONDS})"
    )
    group.add_argument(
        "--flight-audio", action="store_true", help="record what was said, heard and answered too, for `dpfedge replay`"
    )


@contextlib.contextmanager
def observing(args: argparse.Namespace) -> Iterator[Observe | None]:
    """What the flags ask for, while it is needed; UsageError or Unavailable when it cannot be."""
    if args.flight_recorder is None and (args.flight_audio or args.flight_seconds is not None):
        flag = "--flight-audio" if args.flight_audio else "--flight-seconds"
        raise UsageError("there is no recorder", where=flag, remedy="add --flight-recorder FILE")
    with contextlib.ExitStack() as stack:
        makers = [*_recorder(args, stack), *_reporter(args, stack)]
        yield _together(makers) if makers else None


def _recorder(args: argparse.Namespace, stack: contextlib.ExitStack) -> Iterator[Observe]:
    if args.flight_recorder is not None:
        from dpfedge.pipeline.recorder import Recorder

        seconds = _SECONDS if args.flight_seconds is None else args.flight_seconds
        recorder = Recorder(args.flight_recorder, seconds, audio=args.flight_audio)
        stack.callback(recorder.close)
        yield recorder


def _reporter(args: argparse.Namespace, stack: contextlib.ExitStack) -> Iterator[Observe]:
    consumers: list[Consumer] = []
    log = None
    if args.log is not None:
        from dpfedge.serve.turnlog import TurnLog

        log = TurnLog(args.log)
        stack.callback(log.close)
        consumers.append(log)
    if args.otel:
        from dpfedge.serve.traces import Traces

        traces = Traces()
        stack.callback(traces.close)
        consumers.append(traces)
    if consumers:
        from dpfedge.serve.turns import Reporter

        reporter = Reporter(consumers)
        stack.callback(reporter.close)
        if log is not None:
            reopen = log.reopen
            before = signal.signal(signal.SIGHUP, lambda *_: reporter.call(reopen))
            stack.callback(signal.signal, signal.SIGHUP, before)
        yield reporter


def _together(makers: list[Observe]) -> Observe:
    from dpfedge.pipeline.observer import Observers

    def observe(plan: Plan) -> Observer:
        observers = [make(plan) for make in makers]
        return observers[0] if len(observers) == 1 else Observers(observers)

    return observe
