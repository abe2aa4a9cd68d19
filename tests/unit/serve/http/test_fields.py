# SPDX-License-Identifier: Apache-2.0
"""Fields are checked by name; what cannot be used is refused and never ignored."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.serve.errors import RequestError
from dpfedge.serve.http.fields import Check, boolean, choice, integer, number, only, read_fields, strings, text

CHECKS: dict[str, Check] = {"name": text(1, 4), "loud": boolean}


def test_fields__are_checked_and_null_is_not_given() -> None:
    """The values to use."""
    assert read_fields({"name": "joe", "loud": None}, CHECKS) == {"name": "joe"}


@pytest.mark.parametrize(
    ("data", "code", "param"),
    [
        ({"nmae": 1}, "unsupported_parameter", "nmae"),
        ({"loud": True}, "missing_required_parameter", "name"),
        ({"name": None}, "missing_required_parameter", "name"),
        ({"name": ""}, "invalid_value", "name"),
    ],
)
def test_fields__name_what_is_wrong(data: dict[str, Any], code: str, param: str) -> None:
    """One error, with the place it lies in."""
    with pytest.raises(RequestError) as caught:
        read_fields(data, CHECKS, required=("name",), where="session")

    assert (caught.value.code, caught.value.param) == (code, param)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (text(1, 4), ["a", "ü🚗"], ["", "abcde", 1, None, "\ud800"]),
        (boolean, [True, False], [1, "true", 0.0]),
        (number(0, 2), [0, 2, 0.5], [-0.1, 2.1, True, "1", float("nan"), 10**400]),
        (integer(1, 3), [1, 3], [0, 4, True, 1.0, "2"]),
        (choice("a", "b"), ["a"], ["c", None, ["a"]]),
        (only(1, None), [1, None], [1.0, True, 2]),
    ],
)
def test_check__takes_its_kind_only(check: Check, good: list[Any], bad: list[Any]) -> None:
    """A bool is no number, and nothing that is close is bent into shape."""
    assert [check("x", value) for value in good] == good
    for value in bad:
        with pytest.raises(RequestError) as caught:
            check("x", value)
        assert caught.value.param == "x"


def test_strings__one_or_a_few() -> None:
    """Always a tuple; too many, empty or other ones are refused."""
    check = strings(2)

    assert (check("stop", "a"), check("stop", ["a", "b"])) == (("a",), ("a", "b"))
    for value in (["a", "b", "c"], [""], [1], {"a": 1}):
        with pytest.raises(RequestError):
            check("stop", value)


def test_error__shows_a_long_value_cut() -> None:
    """The message stays short whatever is sent."""
    with pytest.raises(RequestError) as caught:
        choice("a")("x", "y" * 10_000)
    assert len(str(caught.value)) < 300
