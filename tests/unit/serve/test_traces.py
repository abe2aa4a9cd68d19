# SPDX-License-Identifier: Apache-2.0
"""A turn's report becomes spans, with the times that the stages reported."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from dpfedge.errors import StageDied, Unavailable, UsageError
from dpfedge.pipeline.events import Failed, TurnDone
from dpfedge.serve import traces
from dpfedge.serve.traces import Traces, spans
from dpfedge.serve.turns import Happened
from dpfedge.stage.api import Mode

MS = 10**6
END = time.monotonic_ns()
REPORT: dict[str, dict[str, Any]] = {
    "decoder": {"speech_end_ns": END - 900 * MS, "endpoint_ns": END - 500 * MS, "vad_ms": 3.0},
    "encoder": {"draft_ns": END - 800 * MS, "text_ns": END - 600 * MS, "speech_end_ns": END - 900 * MS},
    "llm": {"started_ns": END - 590 * MS, "first_token_ns": END - 500 * MS, "decode_ms": 100.0, "source": "llm"},
    "voice": {"started_ns": END - 450 * MS, "busy_ms": 80.0},
    "runtime": {"first_audio_ns": END - 300 * MS, "first_text_ns": END - 499 * MS, "done_ns": END},
}


def _exported(*happened: Happened) -> dict[str, ReadableSpan]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    consumer = Traces(provider)
    for one in happened:
        consumer(one)
    found = {span.name: span for span in exporter.get_finished_spans()}
    consumer.close()
    return found


def test_turn__is_a_trace_of_its_stages() -> None:
    """Each inside the turn's span, from when to when it worked."""
    done = TurnDone(1024, END, "stop", REPORT)
    found = _exported(Happened("done", END, 0xAB, 1024, Mode.CONVERSE, END - 10**11, done, "toy"))
    turn = found.pop("turn")
    assert turn.start_time is not None and turn.end_time is not None and turn.attributes is not None  # noqa: PT018
    begun = turn.end_time - 900 * MS

    assert set(found) == {"decoder", "encoder", "llm", "voice"}
    assert turn.start_time == begun
    assert abs(turn.end_time - time.time_ns()) < 3600 * 10**9
    times = {name: ((span.start_time or 0) - begun, (span.end_time or 0) - begun) for name, span in found.items()}
    assert times == {
        "decoder": (0, 400 * MS), "encoder": (100 * MS, 300 * MS), "llm": (310 * MS, 500 * MS),
        "voice": (450 * MS, 900 * MS),
    }  # fmt: skip
    assert {span.parent and span.parent.span_id for span in found.values()} == {turn.context.span_id}
    assert turn.attributes["dpfedge.request"] == "00000000000000ab"
    assert turn.attributes["dpfedge.first_audio_before_end_ms"] == 300
    assert (found["llm"].attributes or {})["dpfedge.llm.decode_ms"] == 100.0


def test_single_request__begins_when_it_was_opened() -> None:
    """Waiting for the stage is part of it."""
    report = {"voice": {"started_ns": END - 10 * MS}, "runtime": {}}
    done = TurnDone(1, END, "stop", report)
    found = _exported(Happened("done", END, 1, 1, Mode.SPEAK, END - 30 * MS, done, "toy"))
    turn = found["turn"]
    assert (turn.end_time or 0) - (turn.start_time or 0) == 30 * MS


def test_failure__is_a_span_with_an_error() -> None:
    """Stages that come and go are none."""
    failed = Failed(2, END, StageDied("its process died", stage="llm"))
    found = _exported(
        Happened("failed", END, 1, 2, Mode.CHAT, END - MS, failed, "toy"), Happened("died", END, stage="llm")
    )
    assert list(found) == ["turn"]
    assert found["turn"].status.status_code is StatusCode.ERROR
    assert found["turn"].status.description == "its process died"
    assert (found["turn"].attributes or {})["error.type"] == "StageDied"


def test_spans__of_reports_without_times() -> None:
    """A stage that did nothing has none."""
    report: dict[str, Any] = {"decoder": {}, "llm": {"started_ns": 0}, "voice": {"started_ns": END + MS}}
    assert list(spans(TurnDone(1, END, "no_speech", report))) == []


def test_otel__not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 5."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(Unavailable, match=r"dpfedge\[otel\]") as caught:
        Traces()
    assert caught.value.exit_code == 5


def test_exporter__is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not installed is refused by name; `none` is none."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
    with pytest.raises(Unavailable, match="carrier-pigeon"):
        Traces()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "telex")
    with pytest.raises(UsageError, match="telex"):
        Traces()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "car")
    one = Traces()
    assert one._provider.resource.attributes["service.name"] == "car"
    one.close()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.delenv("OTEL_SERVICE_NAME")
    quiet = traces.Traces()
    assert quiet._provider.resource.attributes["service.name"] == "dpfedge"
    quiet.close()
