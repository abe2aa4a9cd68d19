# SPDX-License-Identifier: Apache-2.0
"""The turn log: a turn or a stage's fate in, one line of JSON of bounded length out; TURNLOG.md lists the fields.

Words, samples and options of requests are never in it. It rotates no file: `reopen` after somebody else did.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfedge.errors import DpfError, UsageError
from dpfedge.limits import TURN_LINE_MAX_BYTES
from dpfedge.pipeline.events import Failed, TurnDone
from dpfedge.serve.turns import Happened

__all__ = ["TurnLog", "line"]

_log = logging.getLogger(__name__)
_ERROR_PART_CHARS = 500
_LONG = ("stages", "detail")  # whose size only reports and settings bound


class TurnLog:
    """A consumer of turns that writes lines to a file, or to stdout for `-`."""

    def __init__(self, path: Path) -> None:
        """UsageError when the file cannot be opened."""
        self._path = None if str(path) == "-" else path
        self._fd = 1 if self._path is None else _open(self._path)
        self.failed = 0
        """Lines that could not be written since the last one that could."""

    def __call__(self, happened: Happened) -> None:
        """Write one line; one that cannot be written is counted, and the reason is named once."""
        text = line(happened)
        if self.failed:
            text = _encode({"time": _time(happened.at_ns), "event": "lost", "lines": self.failed}) + text
        try:
            _write(self._fd, text)
        except OSError as error:
            if not self.failed:
                _log.error("the turn log cannot be written: %s; lines are lost until it can", error.strerror)
            self.failed += 1
        else:
            self.failed = 0

    def reopen(self) -> None:
        """Open the path anew, as after a rotation; a file that cannot be opened leaves the old one in use."""
        if self._path is None:
            return
        try:
            fd = _open(self._path)
        except UsageError as error:
            _log.error("%s; the old file is still written", error)
            return
        os.close(self._fd)
        self._fd = fd

    def close(self) -> None:
        """Close the file."""
        if self._path is not None:
            os.close(self._fd)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise UsageError("cannot be written", where=f"--log {path}", found=error.strerror) from error


def _write(fd: int, text: bytes) -> None:
    written = os.write(fd, text)
    while written < len(text):  # a pipe takes parts; a full disk raises at the second try
        written += os.write(fd, text[written:])


def line(happened: Happened) -> bytes:
    """The line of one record, its line end included; never longer than TURN_LINE_MAX_BYTES."""
    fields = _fields(happened)
    text = _encode(fields)
    if len(text) > TURN_LINE_MAX_BYTES:
        text = _encode({**{key: value for key, value in fields.items() if key not in _LONG}, "cut": True})
    return text


def _encode(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _fields(happened: Happened) -> dict[str, Any]:
    head: dict[str, Any] = {"time": _time(happened.at_ns)}
    if happened.what == "lost":
        return {**head, "event": "lost", "lines": happened.turn}
    head["package"] = happened.package[:128]
    if happened.detail is not None:
        return {**head, **_detail(happened.stage, happened.detail)}
    if happened.mode is None:
        return {**head, "event": f"stage_{happened.what}", "stage": happened.stage}
    event = happened.event
    head |= {"event": "turn", "request": f"{happened.key:016x}", "turn": happened.turn}
    head |= {"mode": happened.mode.name.lower(), "outcome": happened.what}
    if happened.opened_ns:
        head["open_ms"] = round((happened.at_ns - happened.opened_ns) / 1e6, 3)
    if isinstance(event, TurnDone):
        return {**head, "finish": event.finish, "stages": _stages(event)}
    return {**head, "error": _error(event.error)} if isinstance(event, Failed) else head


def _detail(stage: str, detail: Mapping[str, Any]) -> dict[str, Any]:
    """`step entered` of the pipeline is event `step_entered`, `replaced` of a stage `stage_replaced`."""
    name = str(detail["what"]).replace(" ", "_")
    head = {"event": f"stage_{name}", "stage": stage} if stage else {"event": name}
    return {**head, "detail": {key: value for key, value in detail.items() if key not in ("what", "at_ns")}}


def _time(at_ns: int) -> str:
    """The time of day of a moment of the monotonic clock, UTC."""
    wall_ns = time.time_ns() - time.monotonic_ns() + at_ns
    seconds, rest = divmod(wall_ns, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 1000:06d}Z"


def _stages(done: TurnDone) -> dict[str, dict[str, Any]]:
    """The report's numbers and short words; moments (`*_ns`) as ms before the turn's end."""
    shown: dict[str, dict[str, Any]] = {}
    for stage, report in done.report.items():
        row = shown[stage] = {}
        for key, value in report.items():
            if key.endswith("_ns"):
                if isinstance(value, int) and 0 < value <= done.at_ns:
                    row[f"{key.removesuffix('_ns')}_ago_ms"] = round((done.at_ns - value) / 1e6, 3)
            elif isinstance(value, (int, float)):
                row[key] = round(value, 3)
            elif isinstance(value, str) and len(value) <= 32:
                row[key] = value
    return shown


def _error(error: DpfError) -> dict[str, str]:
    parts = {"type": type(error).__name__, "where": error.where, "what": error.what, "remedy": error.remedy}
    return {name: str(value)[:_ERROR_PART_CHARS] for name, value in parts.items() if value}
