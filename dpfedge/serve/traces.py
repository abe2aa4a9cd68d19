# SPDX-License-Identifier: Apache-2.0
"""Turns as OpenTelemetry traces: a turn's report in, one span for the turn and one for each of its stages out.

Only timestamps that the stages report anyway are used; nothing is measured for it. Exporter, endpoint and resource come
from the standard OTEL_* environment. It is imported when traces are asked for; `dpfedge[otel]` brings the library.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from dpfedge.errors import Unavailable, UsageError
from dpfedge.pipeline.events import Failed, TurnDone
from dpfedge.serve.turns import Happened
from dpfedge.stage.api import Mode

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

__all__ = ["Traces", "spans"]

_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_END_MAX_S = 2.0
_REMEDY = "install the extra dpfedge[otel]"


class Traces:
    """A consumer of turns that makes spans; `provider` is for tests and embedders, else the environment's is made."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """Unavailable: the library or the exporter is not installed."""
        try:
            from opentelemetry.trace import Status, StatusCode, set_span_in_context

            self._provider = provider or _provider()
        except ImportError as error:
            raise Unavailable("no OpenTelemetry", where="--otel", found=str(error), remedy=_REMEDY) from error
        self._status, self._failed, self._inside = Status, StatusCode.ERROR, set_span_in_context
        self._tracer = self._provider.get_tracer("dpfedge")

    def __call__(self, happened: Happened) -> None:
        """Make the spans of one turn; stages that come and go are no turns."""
        if happened.mode is None:
            return
        offset = time.time_ns() - time.monotonic_ns()
        done = happened.event if isinstance(happened.event, TurnDone) else None
        inner = list(spans(done)) if done is not None else []
        begun = min((start for _, start, _, _ in inner), default=happened.opened_ns or happened.at_ns)
        if happened.mode is not Mode.CONVERSE and happened.opened_ns:
            begun = min(begun, happened.opened_ns)  # a conversation is opened long before its turns
        whole = self._tracer.start_span("turn", start_time=begun + offset, attributes=_attributes(happened))
        for name, start, end, attributes in inner:
            context = self._inside(whole)
            part = self._tracer.start_span(name, context=context, start_time=start + offset, attributes=attributes)
            part.end(end_time=end + offset)
        if isinstance(happened.event, Failed):
            whole.set_status(self._status(self._failed, happened.event.error.what))
        whole.end(end_time=happened.at_ns + offset)

    def close(self) -> None:
        """Export what is left, and end the exporter; a collector that does not answer is waited for briefly."""
        ending = threading.Thread(target=self._provider.shutdown, name="dpf-otel", daemon=True)
        ending.start()
        ending.join(_END_MAX_S)


def spans(done: TurnDone) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """Name, start and end (CLOCK_MONOTONIC) and attributes of each stage that reports when it worked."""
    for stage in ("decoder", "encoder", "llm", "voice"):
        report = done.report.get(stage)
        times = report and _TIMES[stage](report, done.at_ns)
        if report and times and 0 < times[0] <= times[1]:
            yield stage, *times, dict(_numbers(stage, report))


def _last_token(report: Mapping[str, Any], end_ns: int) -> tuple[int, int]:
    started = int(report.get("started_ns", 0))
    first = int(report.get("first_token_ns", 0)) or started
    return started, min(end_ns, first + int(report.get("decode_ms", 0.0) * 1e6))


_TIMES: Mapping[str, Callable[[Mapping[str, Any], int], tuple[int, int]]] = {
    # end of speech → the endpoint is decided
    "decoder": lambda report, end: (report.get("speech_end_ns", 0), report.get("endpoint_ns", 0)),
    # first silence, or else end of speech → the final words
    "encoder": lambda report, end: (report.get("draft_ns") or report.get("speech_end_ns", 0), report.get("text_ns", 0)),
    # the turn reached the llm → its last token
    "llm": _last_token,
    # first clause → the last sample reached this process
    "voice": lambda report, end: (report.get("started_ns", 0), end),
}


def _numbers(stage: str, report: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in report.items():
        if not key.endswith("_ns") and isinstance(value, (int, float)):
            yield f"dpfedge.{stage}.{key}", value


def _attributes(happened: Happened) -> dict[str, Any]:
    assert happened.mode is not None
    told: dict[str, Any] = {
        "dpfedge.request": f"{happened.key:016x}", "dpfedge.turn": happened.turn, "dpfedge.package": happened.package,
        "dpfedge.mode": happened.mode.name.lower(), "dpfedge.outcome": happened.what,
    }  # fmt: skip
    if isinstance(happened.event, TurnDone):
        marks = happened.event.report.get("runtime", {})
        for name in ("first_text", "first_audio"):
            if at_ns := marks.get(f"{name}_ns"):
                told[f"dpfedge.{name}_before_end_ms"] = (happened.at_ns - at_ns) / 1e6
        told["dpfedge.finish"] = happened.event.finish
    elif isinstance(happened.event, Failed):
        error = happened.event.error
        told |= {"error.type": type(error).__name__, "dpfedge.error.where": (error.where or "")[:500]}
    return told


def _provider() -> TracerProvider:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if named else {"service.name": "dpfedge"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in (os.environ.get("OTEL_TRACES_EXPORTER") or "otlp").split(","):
        if name.strip() != "none":
            provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip())))
    return provider


def _exporter(name: str) -> Any:
    if name == "otlp":
        setting = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
        protocol = os.environ.get(setting) or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
        if protocol not in _PROTOCOLS:
            raise UsageError("no such protocol", where=setting, found=protocol, allowed=", ".join(_PROTOCOLS))
        name = _PROTOCOLS[protocol]
    found = entry_points(group="opentelemetry_traces_exporter", name=name)
    if not found:
        known = ", ".join(sorted({point.name for point in entry_points(group="opentelemetry_traces_exporter")}))
        raise Unavailable(
            "this exporter is not installed", where="OTEL_TRACES_EXPORTER", found=name, allowed=known or "none",
            remedy=_REMEDY,
        )  # fmt: skip
    return next(iter(found)).load()()
