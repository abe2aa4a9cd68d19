# SPDX-License-Identifier: Apache-2.0
"""The error tree: its shape, its texts, and that every error survives being copied."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from dpfedge import errors
from dpfedge.errors import BindError, Busy, DpfError, StageDied

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, DpfError)]
TREE = errors.__doc__ or ""


@pytest.mark.parametrize("kind", KINDS)
def test_error__is_exported_and_in_the_tree(kind: type[DpfError]) -> None:
    """The docstring draws it below its base."""
    assert kind.__name__ in errors.__all__
    lines = TREE.splitlines()
    depth = {
        match[2]: len(match[1]) for line in lines if (match := re.match(r"( +(?:[│├└─ ]*))([A-Z][A-Za-z]+)\b", line))
    }
    assert kind.__name__ in depth
    if kind is not DpfError:
        assert depth[kind.__name__] == depth[kind.__mro__[1].__name__] + 4


@pytest.mark.parametrize("kind", KINDS)
def test_error__has_an_exit_code_and_a_status(kind: type[DpfError]) -> None:
    """Of those the command and the server know."""
    assert kind.exit_code in (1, 2, 3, 4, 5)
    assert kind.http_status in (400, 429, 499, 500, 503, 504)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, "it broke"),
        ({"where": "a[0]"}, "a[0]: it broke"),
        (
            {"where": "a", "found": 0, "allowed": "1 to 3", "remedy": "use 1"},
            "a: it broke; found 0; allowed 1 to 3; use 1",
        ),
        ({"found": None, "remedy": ""}, "it broke"),
    ],
)
def test_text__is_built_from_the_parts_that_are_given(parts: dict[str, object], text: str) -> None:
    """In one order; zero is a finding, None is none."""
    error = DpfError("it broke", **parts)  # type: ignore[arg-type]

    assert str(error) == text
    assert (error.what, error.found) == ("it broke", parts.get("found"))


def test_stage__is_the_place_unless_another_is_named() -> None:
    """And a field of its own."""
    assert str(StageDied("its process died", stage="llm")) == "stage llm: its process died"
    assert str(StageDied("died", stage="llm", where="here")) == "here: died"
    assert StageDied("died").where is None


def test_error__keeps_its_fields_when_copied() -> None:
    """Errors cross threads and executors."""
    for error in (Busy("full", retry_after_s=3), BindError("none", refusals=("a", "b")), StageDied("x", stage="llm")):
        for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert type(other) is type(error)
            assert other.__dict__ == error.__dict__
            assert str(other) == str(error)


def test_at__is_the_same_error_of_another_place() -> None:
    """Text and field agree; the rest stays."""
    error = BindError("no target", where="/tmp/copy", found="x", refusals=(1,))

    assert error.at("voice.dpfbin") is error
    assert (str(error), error.where, error.refusals) == ("voice.dpfbin: no target; found x", "voice.dpfbin", (1,))
