# SPDX-License-Identifier: Apache-2.0
"""Key/value memory: reuse, rollback and copies give what a fresh run gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpfedge.errors import BackendError, Busy, ModelError, RunCancelled
from dpfedge.stage.llm.cache import Pool, Prefix, common_prefix
from dpfedge.stage.llm.engine import prefill

TOKENS = [5, 9, 17, 40, 3, 77, 120, 8, 8, 51]


@pytest.fixture(name="graph", params=["written in place", "linked"])
def _graph(graph: Callable[..., Any], request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Both ways to keep keys and values: in memory of this process, and where the device has its own."""

    def load(*args: Any, **more: Any) -> Any:
        loaded = graph(*args, **more)
        loaded.keeps_links = request.param == "linked"
        return loaded

    return load


def fresh(graph: Any, tokens: list[int]) -> np.ndarray:
    place = Pool(graph, places=1, chunk=64).take(())
    place.run(tokens)
    return place.logits().copy()


def test_place__steps_chunks_and_rollback_equal_one_run(graph: Callable[..., Any]) -> None:
    """Whatever was in the place before."""
    loaded = graph(attention=1.0)
    wanted = fresh(loaded, TOKENS)
    assert not np.allclose(wanted, fresh(loaded, [1, *TOKENS[1:]]), atol=1e-3)
    place = Pool(loaded, places=1, chunk=4).take(())
    for _ in prefill(place, [*TOKENS[:6], 99, 98, 97], 4, 99):
        pass
    assert list(prefill(place, TOKENS, 4, 99)) == [4]
    np.testing.assert_allclose(place.logits(), wanted, atol=1e-4)
    place.keep(7)
    for token in TOKENS[7:]:
        place.run((token,))
    np.testing.assert_allclose(place.logits(), wanted, atol=1e-4)


def test_prefill__same_tokens_cost_nothing_until_their_logits_are_used(graph: Callable[..., Any]) -> None:
    """A draft that turns out right is ready; a second use runs the last token again."""
    place = Pool(graph(attention=1.0), places=1, chunk=64).take(())
    assert list(prefill(place, TOKENS, 64, 99)) == [10]
    assert list(prefill(place, TOKENS, 64, 99)) == []
    place.logits()[:] = 0
    assert list(prefill(place, TOKENS, 64, 99)) == [1]
    assert place.logits().any()


@pytest.mark.parametrize(
    ("held", "newest", "counts"),
    [
        (0, 0, [32, 32, 26]),
        (0, 50, [50, 32, 8]),
        (45, 50, [37, 8]),
        (60, 50, [32, 8]),
        (85, 50, [8]),
        (90, 50, [8]),
        (10, 200, [80]),
    ],
)
def test_prefill__the_newest_message_runs_in_the_same_blocks(
    graph: Callable[..., Any], held: int, newest: int, counts: list[int]
) -> None:
    """Whatever part of it the place holds already."""
    tokens = [3 + index % 200 for index in range(90)]
    place = Pool(graph(context=128), places=1, chunk=128).take(())
    if held:
        place.run(tokens[:held])
        place.logits()
    assert list(prefill(place, tokens, 128, newest)) == counts


def test_pool__gives_the_place_that_shares_most(graph: Callable[..., Any]) -> None:
    """And of equals the one unused for longest."""
    pool = Pool(graph(), places=3, chunk=64)
    first, second, third = (pool.take(()) for _ in range(3))
    first.run([5, 6, 7])
    second.run([5, 6, 8, 9])
    for place in (third, first, second):
        pool.give(place)
    assert pool.take([5, 6, 8]) is second
    assert pool.take([5, 6, 8]) is first
    assert pool.take([5, 6, 8]) is third


def test_pool__full(graph: Callable[..., Any]) -> None:
    """Busy until a place comes back."""
    pool = Pool(graph(), places=1, chunk=64)
    place = pool.take(())
    with pytest.raises(Busy):
        pool.take(())
    pool.give(place)
    assert pool.take(()) is place


def test_pool__fills_a_place_from_the_kept_prefix(graph: Callable[..., Any]) -> None:
    """The copy gives the logits of a run."""
    loaded = graph(attention=1.0)
    pool = Pool(loaded, places=2, chunk=64)
    maker = pool.take(())
    maker.run(TOKENS[:6])
    pool.prefix = Prefix.of(maker)
    other = pool.take(TOKENS)
    assert other.tokens == TOKENS[:6]
    assert list(prefill(other, TOKENS, 64, 99)) == [4]
    np.testing.assert_allclose(other.logits(), fresh(loaded, TOKENS), atol=1e-4)
    again = Prefix.of(other)
    for mine, theirs in zip(again.memory, pool.prefix.memory, strict=True):
        np.testing.assert_allclose(mine[:, :, :6], theirs, atol=1e-5)
    assert all(array.shape[2] == len(TOKENS) for array in again.memory)


def test_place__run_that_fails_forgets(graph: Callable[..., Any]) -> None:
    """Nobody may reuse memory of unknown content."""
    place = Pool(graph(), places=1, chunk=64).take(())
    place.run([1, 2, 3])
    with pytest.raises(BackendError):
        place.run([10**6])
    assert place.tokens == []


def test_place__run_that_was_ended_keeps_what_was_held(graph: Callable[..., Any]) -> None:
    """A cancel leaves the sequence as it was: the next turn need not read all of it again."""
    loaded = graph(attention=1.0)
    place = Pool(loaded, places=1, chunk=64).take(())
    place.run(TOKENS[:6])
    stop: Any = place._binding
    stop.cancel()
    with pytest.raises(RunCancelled):
        place.run(TOKENS[6:])
    stop.rearm()
    assert (place.tokens, place.holds(TOKENS[:6])) == (TOKENS[:6], False)
    place.run(TOKENS[6:])
    np.testing.assert_allclose(place.logits(), fresh(loaded, TOKENS), atol=1e-4)


def test_pool__graph_with_other_ports() -> None:
    """The odd ports are listed."""

    class Ports:
        name, inputs, outputs = "odd", (), ()

    with pytest.raises(ModelError, match="attention_mask, input_ids"):
        Pool(Ports(), places=1, chunk=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "second", "size"), [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 9], 1)])
def test_common_prefix__counts_equal_beginnings(first: list[int], second: list[int], size: int) -> None:
    """Up to the first difference."""
    assert common_prefix(first, second) == size
