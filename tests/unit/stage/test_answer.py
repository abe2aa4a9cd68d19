# SPDX-License-Identifier: Apache-2.0
"""One array through a graph: what it gives and for how long it is held."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpfedge.errors import RunCancelled
from dpfedge.stage.answer import Answer


class FakeBinding:
    """Doubles; its answer lives as long as it does."""

    def __init__(self, ended: bool) -> None:
        self.ended, self.array = ended, np.zeros(0)

    def set_input(self, name: str, array: Any) -> None:
        self.array = array

    def run(self) -> None:
        if self.ended:
            raise RunCancelled("nobody waits")

    def output(self, name: str) -> Any:
        return self.array * 2


def _graph(made: list[Any], *, ended: bool = False) -> Any:
    def bind() -> FakeBinding:
        binding = FakeBinding(ended)
        made.append(weakref.ref(binding))
        return binding

    port = (SimpleNamespace(name="x"),)
    return SimpleNamespace(inputs=port, outputs=port, bind=bind)


def test_answer__is_held_until_it_was_looked_at() -> None:
    """And no longer than the next one: what was read may lie in a link's slot."""
    made: list[Any] = []
    answer, graph, array = Answer(), _graph(made), np.ones(3)
    assert answer.of(graph, array).tolist() == [2, 2, 2]
    assert made[0]() is not None
    answer.of(graph, array)
    assert (made[0](), made[1]() is not None) == (None, True)
    answer.release()
    assert made[1]() is None


def test_answer__of_a_run_that_was_ended_holds_nothing() -> None:
    """Neither the answer that is none, nor what was read."""
    made: list[Any] = []
    answer = Answer()
    with pytest.raises(RunCancelled):
        answer.of(_graph(made, ended=True), np.ones(3))
    assert made[0]() is None
