# SPDX-License-Identifier: Apache-2.0
"""The recogniser's loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import ModelError
from dpfedge.stage.api import Wait
from dpfedge.stage.encoder.moonshine import Moonshine, Recognition, repeated


def finish(run: Any) -> tuple[Recognition, list[Wait]]:
    waits = []
    while True:
        try:
            waits.append(next(run))
        except StopIteration as end:
            return end.value, waits


@pytest.fixture
def recogniser(toy: Any) -> Moonshine:
    return Moonshine(toy(), Budget(), tokens_per_second=6.5, repeats=4)


def test_recognise__tokens_and_steps(recogniser: Moonshine, said: Any) -> None:
    """Three words are three tokens, with a step after the features and after each token but the last."""
    found, waits = finish(recogniser.recognise(said(3)))

    assert found.tokens == [301, 302, 303]
    assert (found.stopped, found.samples) == ("end", 32000)
    assert waits == [Wait.STEP] * 4
    assert found.encode_ns > 0 < found.decode_ns


def test_recognise__two_runs_take_turns(recogniser: Moonshine, said: Any) -> None:
    """Requests that take turns at every step do not mix."""
    runs = [recogniser.recognise(said(count)) for count in (2, 5)]
    texts: dict[int, list[int]] = {}
    while len(texts) < 2:
        for index, run in enumerate(runs):
            if index not in texts:
                try:
                    next(run)
                except StopIteration as end:
                    texts[index] = end.value.tokens

    assert texts == {0: [301, 302], 1: [301, 302, 303, 304, 305]}


def test_recognise__longer_than_the_audio_can_be(recogniser: Moonshine, said: Any) -> None:
    """More tokens than anybody can speak in that time are cut off."""
    found, _ = finish(recogniser.recognise(said(9, 16000)))

    assert (len(found.tokens), found.stopped) == (6, "length")


def test_recognise__endless_repetition(toy: Any, said: Any) -> None:
    """A loop ends the run, and one of its words stays."""
    recogniser = Moonshine(toy(loop=True), Budget(), tokens_per_second=6.5, repeats=4)

    found, _ = finish(recogniser.recognise(said(1, 160_000)))

    assert (found.tokens, found.stopped) == ([301], "repeat")


def test_recognise__given_up(recogniser: Moonshine, said: Any) -> None:
    """A closed run leaves nothing behind that the next one sees."""
    run = recogniser.recognise(said(5))
    next(run)
    next(run)
    run.close()

    assert finish(recogniser.recognise(said(1)))[0].tokens == [301]


@pytest.mark.parametrize(
    ("tokens", "dropped"),
    [
        ([7] * 11, 0),
        ([7] * 12, 11),
        ([1, 2, 3] * 4, 9),
        ([1, 2, 3] * 3, 0),
        ([9, *[1, 2] * 6], 10),
        (list(range(40)), 0),
    ],
)
def test_repeated(tokens: list[int], dropped: int) -> None:
    """Only a real loop is one."""
    assert repeated(tokens, 4) == dropped


def test_init__missing_graph(driver: Any, toy: Any) -> None:
    """A graph that is not in the package is named."""
    graphs = {"encode": toy()._graphs["encode"]}
    with pytest.raises(ModelError, match="decode_first, decode_step"):
        Moonshine(driver.Model("toy", graphs, {}), Budget(), tokens_per_second=6.5, repeats=4)


def test_recognise__input_is_read_in_place(recogniser: Moonshine, said: Any) -> None:
    """A read-only view, as a lease gives it, is enough."""
    samples = said(2)
    samples.flags.writeable = False

    assert finish(recogniser.recognise(samples[:-1]))[0].tokens == [301, 302]
    assert samples.dtype == np.float32
