# SPDX-License-Identifier: Apache-2.0
"""How long a request may take and how urgent it is, from its headers: `Priority` (RFC 9218) and `DPF-Deadline-Ms`.

Other members of `Priority` (`i`, later ones) are ignored, as the RFC asks; a value out of range is refused.
"""

from __future__ import annotations

import re

from starlette.requests import Request

from dpfedge.errors import InputError
from dpfedge.limits import DEADLINE_MAX_S
from dpfedge.runtime import Limits

__all__ = ["DEADLINE", "limits_of"]

DEADLINE = "dpf-deadline-ms"
_URGENCY = re.compile(r"u=([0-9]+)")


def limits_of(request: Request) -> Limits:
    """The headers' limits; InputError names a header that makes no sense."""
    return Limits(
        deadline_s=_deadline(request.headers.get(DEADLINE)), urgency=_urgency(request.headers.get("priority"))
    )


def _urgency(text: str | None) -> int:
    for member in (text or "").split(","):
        match = _URGENCY.fullmatch(member.split(";")[0].strip())
        if match is None:
            continue
        if len(match[1]) > 1 or match[1] > "7":
            raise InputError("urgency is out of range", where="header Priority", found=member, allowed="u=0 to u=7")
        return int(match[1])
    return Limits().urgency


def _deadline(text: str | None) -> float | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 0 < int(text) < DEADLINE_MAX_S * 1000:
        where, allowed = "header DPF-Deadline-Ms", f"whole milliseconds, 1 to {DEADLINE_MAX_S * 1000 - 1}"
        raise InputError("the deadline makes no sense", where=where, found=text[:40], allowed=allowed)
    return int(text) / 1000
