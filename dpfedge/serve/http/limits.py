# SPDX-License-Identifier: Apache-2.0
"""How long a request may take and how urgent it is, from its headers: `Priority` (RFC 9218) and `DPF-Deadline-Ms`.

Other members of `Priority` (`i`, later ones) and an urgency out of range are ignored: the RFC demands both (section 4).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from starlette.requests import Request

from dpfedge.errors import InputError
from dpfedge.limits import DEADLINE_MAX_S
from dpfedge.runtime import Limits
from dpfedge.serve.noting import DEMOTED, PRIORITY, note
from dpfedge.serve.provider import Provider

__all__ = ["DEADLINE", "admitted", "limits_of"]

DEADLINE = "dpf-deadline-ms"
_URGENCY = re.compile(r"u=([0-7])")


def limits_of(request: Request) -> Limits:
    """The headers' limits; InputError names a header that makes no sense."""
    return Limits(
        deadline_s=_deadline(request.headers.get(DEADLINE)), urgency=_urgency(request.headers.getlist("priority"))
    )


def admitted(request: Request, provider: Provider) -> Limits:
    """The headers' limits as the server grants them: while memory is low, what is less urgent than usual goes last.

    The answer says so: `Priority: u=7` and `DPF-Demoted: memory`.
    """
    limits = limits_of(request)
    urgency = provider.runtime.urgency(limits.urgency)
    if urgency == limits.urgency:
        return limits
    note(request, PRIORITY, f"u={urgency}")
    note(request, DEMOTED, "memory")
    return replace(limits, urgency=urgency)


def _urgency(lines: Sequence[str]) -> int:
    """Of a key that stands there twice the last one counts (RFC 9651, section 3.2)."""
    members = [member.split(";")[0].strip() for line in lines for member in line.split(",")]
    named = [member for member in members if member.startswith("u=")]
    match = _URGENCY.fullmatch(named[-1]) if named else None
    return Limits().urgency if match is None else int(match[1])


def _deadline(text: str | None) -> float | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 0 < int(text) < DEADLINE_MAX_S * 1000:
        where, allowed = "header DPF-Deadline-Ms", f"whole milliseconds, 1 to {DEADLINE_MAX_S * 1000 - 1}"
        raise InputError("the deadline makes no sense", where=where, found=text[:40], allowed=allowed)
    return int(text) / 1000
