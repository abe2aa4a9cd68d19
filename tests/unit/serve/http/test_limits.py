# SPDX-License-Identifier: Apache-2.0
"""A request's time and urgency from its headers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from dpfedge.errors import InputError
from dpfedge.runtime import Limits
from dpfedge.serve.http.limits import admitted, limits_of
from dpfedge.serve.noting import noted


def _request(**headers: str) -> Request:
    rows = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": rows})


@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        ({}, Limits()),
        ({"priority": "u=0"}, Limits(urgency=0)),
        ({"priority": "i, u=7;x=1"}, Limits(urgency=7)),
        ({"priority": "i"}, Limits()),
        ({"priority": "u=8"}, Limits()),
        ({"priority": "u=33"}, Limits()),
        ({"priority": "u=-1, i"}, Limits()),
        ({"priority": "u=1, u=5"}, Limits(urgency=5)),
        ({"priority": "u=1, u=9"}, Limits()),
        ({"dpf_deadline_ms": "1500"}, Limits(deadline_s=1.5)),
        ({"dpf_deadline_ms": "1", "priority": "u=1"}, Limits(deadline_s=0.001, urgency=1)),
    ],
)
def test_headers__that_make_sense(headers: dict[str, str], limits: Limits) -> None:
    """RFC 9218's urgency; what else its header says is not ours, and an urgency out of range must be ignored."""
    assert limits_of(_request(**headers)) == limits


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"dpf_deadline_ms": "0"}, "header DPF-Deadline-Ms: the deadline makes no sense; found 0; allowed whole milli"),
        ({"dpf_deadline_ms": "soon"}, "found soon"),
        ({"dpf_deadline_ms": "-1"}, "found -1"),
        ({"dpf_deadline_ms": "86400000"}, "1 to 86399999"),
    ],
)
def test_headers__that_make_none(headers: dict[str, str], words: str) -> None:
    """A 400 that names the header."""
    with pytest.raises(InputError, match=words):
        limits_of(_request(**headers))


def test_priority__of_two_lines_is_one_list() -> None:
    """A header that stands there twice is one with both."""
    rows = [(b"priority", b"u=1"), (b"priority", b"i, u=2")]
    assert limits_of(Request({"type": "http", "headers": rows})) == Limits(urgency=2)


def test_admitted__while_memory_is_low() -> None:
    """What is not urgent goes last, and its answer says so; the deadline stays."""
    low: Any = SimpleNamespace(runtime=SimpleNamespace(urgency=lambda wanted: 7 if wanted > 3 else wanted))
    request = _request(priority="u=5", dpf_deadline_ms="1500")
    assert admitted(request, low) == Limits(deadline_s=1.5, urgency=7)
    assert noted(request.scope) == [(b"priority", b"u=7"), (b"dpf-demoted", b"memory")]
    for headers in ({"priority": "u=3"}, {"priority": "u=7"}, {}):
        request = _request(**headers)
        assert (admitted(request, low), noted(request.scope)) == (limits_of(request), [])
