# SPDX-License-Identifier: Apache-2.0
"""Errors cross processes and stay what they were."""

from __future__ import annotations

import json
import re

import cbor2
import pytest

from dpfedge import errors
from dpfedge.errors import (
    Busy,
    ContextLengthError,
    DeadlineExceeded,
    DpfError,
    InputError,
    LinkError,
    NoInstance,
    StageDied,
    StageError,
)
from dpfedge.limits import ERROR_PART_MAX_BYTES
from dpfedge.stage.failure import describe, raised, rebuild

EVERY = [
    kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, DpfError) and kind is not NoInstance
]
"""A router alone has a NoInstance."""


@pytest.mark.parametrize("kind", EVERY)
def test_error__survives_the_way(kind: type[DpfError]) -> None:
    """Class, parts, text and HTTP status, through CBOR and JSON alike."""
    before = kind("it broke", where="here", found=3, allowed=(1, 2), remedy="stop")

    for carried in (cbor2.loads(cbor2.dumps(describe(before, "llm"))), json.loads(json.dumps(describe(before, "llm")))):
        after = rebuild(carried)

        assert type(after) is kind
        assert str(after) == str(before)
        assert after.http_status == before.http_status


def test_deadline__says_whether_the_stage_waited() -> None:
    """Whoever asks which of several stages was late needs the one that was at work."""
    for waited in (True, False):
        after = rebuild(cbor2.loads(cbor2.dumps(describe(DeadlineExceeded("late", waited=waited), "llm"))))

        assert isinstance(after, DeadlineExceeded)
        assert after.waited is waited


def test_stage_error__names_the_stage_that_sent_it() -> None:
    """Also when the raiser gave none."""
    after = rebuild(describe(InputError("no"), "encoder"))

    assert isinstance(after, StageError)
    assert after.stage == "encoder"


def test_busy__keeps_its_pause() -> None:
    """The HTTP face puts it into Retry-After."""
    after = rebuild(describe(Busy("full", retry_after_s=7), "llm"))

    assert isinstance(after, Busy)
    assert after.retry_after_s == 7


def test_long_parts__are_cut_to_fit_a_slot() -> None:
    """A caller's own text may be megabytes."""
    long = "ä" * 1_000_000
    shown = describe(LinkError(long, where=long, found=long, allowed=long, remedy=long), "decoder")

    assert len(cbor2.dumps(shown)) < 4096
    assert shown["found"].startswith("ää")
    assert len(shown["found"].encode()) <= ERROR_PART_MAX_BYTES + 3


@pytest.mark.parametrize("kind", ["Nonsense", "annotations", "__all__", None, 3])
def test_unknown_class__becomes_a_stage_error(kind: object) -> None:
    """A newer stage may know more errors."""
    after = rebuild({"type": kind, "what": "odd", "stage": "llm"})

    assert type(after) is StageError
    assert str(after) == "stage llm: odd"


def test_context_length__is_still_the_callers_mistake() -> None:
    """400, with both sizes."""
    after = rebuild(describe(ContextLengthError("too long", stage="llm", found="9", allowed="8"), "llm"))

    assert (after.http_status, after.found, after.allowed) == (400, "9", "8")
    assert not isinstance(after, StageDied)


def test_raised__says_what_and_where() -> None:
    """The innermost place, by its file's name; an exception that was not raised has none."""
    with pytest.raises(KeyError) as caught:
        {}["a"]
    assert re.fullmatch(r"KeyError: 'a' \(test_failure\.py, line \d+\)", raised(caught.value))
    assert raised(ValueError("x")) == "ValueError: x"
