# SPDX-License-Identifier: Apache-2.0
"""Differences between what something was built with and what is here."""

from __future__ import annotations

from dpfedge.binding.stale import differences


def test_differences__names_each_field_both_ways() -> None:
    """A changed, a missing and a new fact are all named, with what to do."""
    found = differences("seal x", {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "5", "d": "4"})

    assert [str(stale) for stale in found] == [
        "seal x: refused: b: wanted 2; found 5; run `dpfedge seal`",
        "seal x: refused: c: wanted 3; found nothing; run `dpfedge seal`",
        "seal x: refused: d: wanted nothing; found 4; run `dpfedge seal`",
    ]


def test_differences__equal_is_none() -> None:
    """Nothing differs, nothing is refused."""
    assert list(differences("x", {"a": "1"}, {"a": "1"})) == []
