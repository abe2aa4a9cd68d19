# SPDX-License-Identifier: Apache-2.0
"""Errors on their way between processes: an error in, a small map out, and back; nothing is raised or sent here."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfedge import errors
from dpfedge.errors import Busy, DeadlineExceeded, DpfError, NoInstance, StageError
from dpfedge.limits import ERROR_PART_MAX_BYTES

__all__ = ["describe", "raised", "rebuild"]

_PARTS = ("where", "found", "allowed", "remedy")


def describe(error: DpfError, stage: str) -> dict[str, Any]:
    """The map of an error that `stage` raised; long parts (a caller's own text) are cut to fit any link's slot."""
    parts = {name: getattr(error, name) for name in _PARTS}
    shown = {name: None if value is None else _cut(str(value)) for name, value in parts.items()}
    return {"stage": stage, "type": type(error).__name__, "what": _cut(error.what), **shown, **_own(error)}


def _own(error: DpfError) -> dict[str, Any]:
    if isinstance(error, Busy):
        return {"retry_after_s": error.retry_after_s}
    return {"waited": error.waited} if isinstance(error, DeadlineExceeded) else {}


def raised(error: BaseException) -> str:
    """What somebody's code raised, and where: `KeyError: 'a' (stages.py, line 7)`."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {_cut(str(error))}{place}"


def rebuild(data: Mapping[str, Any]) -> DpfError:
    """The error of a map, as the class it was; StageError for a class this version does not know."""
    kind = getattr(errors, str(data.get("type")), None)
    if not (isinstance(kind, type) and issubclass(kind, DpfError)) or kind is NoInstance:  # of no stage
        kind = StageError
    parts = {name: data[name] for name in _PARTS if data.get(name) is not None}
    what = str(data.get("what") or "failed")
    if issubclass(kind, DeadlineExceeded):
        return kind(what, stage=data.get("stage"), waited=bool(data.get("waited")), **parts)
    if issubclass(kind, StageError):
        return kind(what, stage=data.get("stage"), **parts)
    if issubclass(kind, Busy):
        return kind(what, retry_after_s=int(data.get("retry_after_s") or 1), **parts)
    return kind(what, **parts)


def _cut(text: str) -> str:
    data = text.encode("utf-8", "replace")
    return text if len(data) <= ERROR_PART_MAX_BYTES else data[:ERROR_PART_MAX_BYTES].decode("utf-8", "ignore") + "…"
