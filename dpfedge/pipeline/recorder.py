# SPDX-License-Identifier: Apache-2.0
"""What a flight recorder writes of a runtime: descriptors and events in, records of a file out; FLIGHT.md lists them.

Without `audio` no word and no sample of any request is written. It reads no recording; `runtime/replay.py` does.
"""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Any

import cbor2

from dpfedge.errors import DpfError
from dpfedge.link import Descriptor, Lease
from dpfedge.pipeline.events import Failed, TurnDone
from dpfedge.pipeline.flight import FlightFile, Lane, RecordKind
from dpfedge.pipeline.observer import Observer
from dpfedge.pipeline.plan import Plan
from dpfedge.stage.api import Kind, Mode
from dpfedge.stage.failure import describe

__all__ = ["CANCELLED", "CLOSED", "OPENED", "Recorder"]

OPENED, CLOSED, CANCELLED = struct.Struct("<QB"), struct.Struct("<Q"), struct.Struct("<QI")
_OUTCOME = frozenset({Kind.TEXT, Kind.AUDIO, Kind.DATA, Kind.DONE, Kind.FAILED})


class Recorder:
    """One file for every runtime of a process; call it with a plan for the observer of its runtime."""

    def __init__(self, path: Path, seconds: int, *, audio: bool) -> None:
        self.file, self._audio = FlightFile(path, seconds, audio=audio), audio
        self._numbers = itertools.count()

    def __call__(self, plan: Plan) -> Observer:
        number, package = next(self._numbers), None if plan.bound is None else plan.bound.package
        links = [spec.name for spec in plan.graph.links()]
        sampling = plan.section["stages"].get("llm", {}).get("sampling") or {}
        voice = plan.section["stages"].get("voice", {})
        self.file.describe(
            number,
            {
                "package": plan.name, "version": "" if package is None else package.manifest.version,
                "manifest": b"" if package is None else package.manifest_sha256,
                "board": plan.board.id, "links": links, "audio": self._audio,
                "temperature": sampling.get("temperature", 0.0), "seed": sampling.get("seed"),
                "noiseless": voice.get("noise_scale") == 0 and voice.get("noise_w") == 0,
            },
        )  # fmt: skip
        # at most one runtime lives beside another, so neighbours in number never share a lane of the sink's thread
        source, *sinks = self.file.lanes
        return _Recording(number, links, source, sinks[number % len(sinks)], self._audio)

    def close(self) -> None:
        """Unmap the file; after every runtime was closed."""
        self.file.close()


class _Recording(Observer):
    """Of one runtime. The loop's thread writes into `source`, the sink's thread into `sink`."""

    def __init__(self, number: int, links: list[str], source: Lane, sink: Lane, audio: bool) -> None:
        self._number, self._source, self._sink, self._audio = number, source, sink, audio
        self._links = {name: index for index, name in enumerate(links)}
        self.tap = self

    def sent(self, link: str, descriptor: Descriptor, payload: memoryview) -> None:
        data = descriptor.pack()
        self._source.write(
            RecordKind.SENT, self._number, self._links[link], data + bytes(payload) if self._audio else data
        )

    def received(self, link: str, lease: Lease) -> None:
        a, b, c = (*lease.shape, 0, 0, 0)[:3]
        place = (lease.slot, lease.generation, lease.sequence, lease.turn, lease.offset, lease.nbytes)
        data = Descriptor(
            lease.request, lease.captured_ns, lease.deadline_ns, *place, (a, b, c), lease.dtype, len(lease.shape),
            lease.urgency, lease.kind, lease.flags,
        ).pack()  # fmt: skip
        if self._audio and lease.kind in _OUTCOME:
            data += bytes(lease.view)
        self._sink.write(RecordKind.RECEIVED, self._number, self._links[link], data)

    def opened(self, key: int, mode: Mode) -> None:
        self._event(RecordKind.OPENED, OPENED.pack(key, mode))

    def closed(self, key: int) -> None:
        self._event(RecordKind.CLOSED, CLOSED.pack(key))

    def cancelled(self, key: int, before: int) -> None:
        self._event(RecordKind.CANCELLED, CANCELLED.pack(key, before))

    def ended(self, key: int, mode: Mode, event: TurnDone | Failed) -> None:
        told: dict[str, Any] = {"key": key, "turn": event.turn}
        if isinstance(event, TurnDone):
            told["finish"] = event.finish
        else:
            told["error"] = _error(event.error)
        self._event(RecordKind.ENDED, cbor2.dumps(told))

    def stage_ready(self, name: str) -> None:
        self._event(RecordKind.STAGE_READY, name.encode())

    def stage_died(self, name: str) -> None:
        self._event(RecordKind.STAGE_DIED, name.encode())

    def _event(self, kind: RecordKind, payload: bytes) -> None:
        self._source.write(kind, self._number, 0, payload)


def _error(error: DpfError) -> dict[str, str]:
    parts = describe(error, getattr(error, "stage", None) or "runtime")
    return {name: str(parts[name]) for name in ("type", "what", "where") if parts.get(name)}
