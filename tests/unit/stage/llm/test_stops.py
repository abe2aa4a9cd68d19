# SPDX-License-Identifier: Apache-2.0
"""Stop strings in growing text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedge.stage.llm.stops import StopFinder


def run(text: str, stops: list[str], step: int) -> tuple[str, bool]:
    finder = StopFinder(stops)
    shown = "".join(finder.push(text[start : start + step]) for start in range(0, len(text), step))
    return shown + finder.finish(), finder.found


@pytest.mark.parametrize("step", [1, 2, 3, 50])
def test_push__stop_string_over_pieces(step: int) -> None:
    """Everything before it is shown, nothing of it, nothing after it."""
    assert run("Hello END world", ["END", "never"], step) == ("Hello ", True)


def test_push__beginning_that_never_ends_is_shown() -> None:
    """It is held back, not lost."""
    finder = StopFinder(["<stop>"])
    assert finder.push("a <st") == "a "
    assert finder.push("ay") == "<stay"
    assert (finder.push(" <s"), finder.finish()) == (" ", "<s")


@given(
    st.text(alphabet="ab", max_size=30),
    st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=3),
    st.integers(1, 5),
)
def test_push__equals_searching_the_whole(text: str, stops: list[str], step: int) -> None:
    """For single pieces the first stop string in the text counts."""
    places = [place for place in (text.find(stop) for stop in stops) if place >= 0]
    shown, found = run(text, stops, 1)
    assert found is bool(places)
    if not places:
        assert run(text, stops, step) == (text, False)
    else:
        ends = min(text.find(stop) + len(stop) for stop in stops if stop in text)
        assert text.startswith(shown)
        assert len(shown) < ends
