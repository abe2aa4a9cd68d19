# SPDX-License-Identifier: Apache-2.0
"""Joining ports by time: which messages meet, what is dropped, and that nothing is lost, leaked or given back twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedge.config import load_yaml
from dpfedge.errors import ConfigError, StageError, UsageError
from dpfedge.stage.join import Join, Policy, Sync

PORTS = ("frames", "speech", "gaze")
Streams = Mapping[str, Sequence[int]]
Sets = list[dict[str, tuple[int, int]]]


@dataclass
class Timed:
    """A message that counts its releases and knows its place on its port."""

    captured_ns: int
    place: int = 0
    released: int = field(default=0, compare=False)

    def release(self) -> None:
        self.released += 1


def fill(join: Join[Timed], port: str, *times: int) -> list[Timed]:
    """Put messages of these times."""
    messages = [Timed(time) for time in times]
    for message in messages:
        join.put(port, message)
    return messages


def times(found: Mapping[str, Timed] | None) -> dict[str, int] | None:
    """A set's times."""
    return None if found is None else {port: message.captured_ns for port, message in found.items()}


def two(policy: Policy = "exact", tolerance_ns: int = 0, depth: int = 8) -> Join[Timed]:
    """Frames lead, speech follows."""
    return Join(("frames", "speech"), lead="frames", policy=policy, tolerance_ns=tolerance_ns, depth=depth)


# --- which messages meet ---


def test_exact__waits_for_the_same_time() -> None:
    """A lead waits until the other port has passed its time; a time without a partner is dropped on both sides."""
    join = two()
    frames = fill(join, "frames", 10, 20, 30)
    assert join.take() is None

    speech = fill(join, "speech", 20, 25)

    assert times(join.take()) == {"frames": 20, "speech": 20}
    assert join.take() is None  # 30 may still come
    join.end("speech")
    assert join.take() is None
    assert [message.released for message in frames + speech] == [1, 1, 1, 1, 1]
    assert (join.counts["frames"].used, join.counts["frames"].unmatched) == (1, 2)
    assert (join.counts["speech"].used, join.counts["speech"].unmatched) == (1, 1)


def test_exact__pairs_equal_times_in_order() -> None:
    """Two messages of one time meet the two of the other port, each once."""
    join = two()
    fill(join, "frames", 5, 5, 5)
    fill(join, "speech", 5, 5, 6)

    assert times(join.take()) == times(join.take()) == {"frames": 5, "speech": 5}
    assert join.take() is None
    assert join.counts["frames"].unmatched == 1


def test_nearest__takes_the_closest_within_the_tolerance() -> None:
    """It is decided as soon as the other port has reached the lead's time; the same message may serve again."""
    join = two("nearest", tolerance_ns=4)
    fill(join, "frames", 10, 11, 20)
    fill(join, "speech", 8)
    assert join.take() is None  # something between 8 and 12 may still come

    fill(join, "speech", 13)

    assert times(join.take()) == {"frames": 10, "speech": 8}
    assert times(join.take()) == {"frames": 11, "speech": 13}
    assert join.take() is None
    fill(join, "speech", 29)
    assert join.take() is None  # 13 and 29 are both too far from 20
    assert join.counts["frames"].unmatched == 1
    assert join.counts["speech"].used == 2


def test_nearest__of_two_as_near_takes_the_earlier() -> None:
    """So that the choice is one, however they arrive."""
    join = two("nearest", tolerance_ns=5)
    fill(join, "speech", 8, 12)
    fill(join, "frames", 10)

    assert times(join.take()) == {"frames": 10, "speech": 8}


def test_nearest__does_not_stop_at_equal_times() -> None:
    """A message behind two of one time is found."""
    join = two("nearest", tolerance_ns=1)
    fill(join, "speech", 5, 5, 7)
    fill(join, "frames", 7)

    assert times(join.take()) == {"frames": 7, "speech": 7}


def test_latest__keeps_a_value_until_a_newer_one_holds() -> None:
    """A value after the lead's time is not used yet; one before it holds for as many leads as come."""
    join = two("latest")
    fill(join, "frames", 5)
    assert join.take() is None  # nothing to show yet: dropped, not kept waiting
    [first, second] = fill(join, "speech", 6, 20)
    fill(join, "frames", 10, 12, 20)

    assert [times(join.take()) for _ in range(3)] == [
        {"frames": 10, "speech": 6},
        {"frames": 12, "speech": 6},
        {"frames": 20, "speech": 20},
    ]
    assert (first.released, second.released) == (0, 0)  # the last set's neighbours may be looked at until the next take
    join.end("speech")
    fill(join, "frames", 99)
    assert times(join.take()) == {"frames": 99, "speech": 20}
    assert (first.released, second.released) == (1, 0)
    assert join.counts["frames"].unmatched == 1


def test_three_ports__all_must_have_a_partner() -> None:
    """A lead that one port refuses is dropped although another may still bring its partner."""
    join: Join[Timed] = Join(PORTS, lead="frames")
    fill(join, "frames", 10, 20)
    fill(join, "speech", 20)
    assert join.take() is None
    assert join.counts["frames"].unmatched == 1
    fill(join, "gaze", 10, 20)

    assert times(join.take()) == {"frames": 20, "speech": 20, "gaze": 20}


def test_end__of_the_lead_finishes_the_join() -> None:
    """What the other ports hold has no use any more and is given back."""
    join = two()
    fill(join, "frames", 10)
    join.end("frames")
    assert not join.finished

    speech = fill(join, "speech", 10, 11)
    assert times(join.take()) == {"frames": 10, "speech": 10}

    assert join.finished
    assert join.take() is None
    assert [message.released for message in speech] == [1, 1]


# --- bounds and mistakes ---


def test_depth__drops_the_oldest_and_counts_it() -> None:
    """No port holds more than `depth` messages."""
    join = two(depth=2)
    speech = fill(join, "speech", 1, 2, 3, 4)

    assert [message.released for message in speech] == [1, 1, 0, 0]
    assert (join.counts["speech"].overflowed, join.counts["speech"].dropped) == (2, 2)


def test_depth__never_takes_away_the_set_that_is_looked_at() -> None:
    """What comes meanwhile pushes messages out of the queue, not out of the hands of who took them."""
    join = two("latest", depth=1)
    [speech] = fill(join, "speech", 1)
    [frame] = fill(join, "frames", 2)
    assert join.take() is not None

    fill(join, "speech", 3, 4)
    fill(join, "frames", 3, 4)

    assert (speech.released, frame.released) == (0, 0)
    join.take()
    assert (speech.released, frame.released) == (1, 1)


def test_put__time_goes_backwards() -> None:
    """The error names the port and both times; the message stays the caller's."""
    join = two()
    fill(join, "speech", 20)
    late = Timed(19)

    with pytest.raises(StageError, match=r"port speech: time went backwards; found 19 ns after 20 ns"):
        join.put("speech", late)
    assert late.released == 0
    fill(join, "speech", 20)


def test_put__mistakes_are_named() -> None:
    """No time, a port that has ended, a port that is none."""
    join = two()
    join.end("speech")

    with pytest.raises(StageError, match="port frames: the message has no time"):
        join.put("frames", Timed(0))
    with pytest.raises(StageError, match="port speech: a message came after the end"):
        join.put("speech", Timed(1))
    with pytest.raises(UsageError, match="no such port; found voice; allowed frames, speech"):
        join.put("voice", Timed(1))
    with pytest.raises(UsageError, match="the lead is no port"):
        Join(("a", "b"), lead="c")


# --- whatever comes ---


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, list[int]], list[str], list[str], Policy, int]:
    """Rising times for each port, two ways of mixing them, a policy and a tolerance."""
    some = st.lists(st.integers(1, 40), max_size=8).map(sorted)
    streams = {port: draw(some) for port in PORTS[: draw(st.integers(2, 3))]}
    arrivals = [port for port, row in streams.items() for _ in range(len(row) + 1)]  # the last of each is its end
    mixed = st.permutations(arrivals)
    policy: Policy = draw(st.sampled_from(["exact", "nearest", "latest"]))
    return streams, draw(mixed), draw(mixed), policy, draw(st.integers(0, 10))


def play(
    join: Join[Timed], streams: Streams, order: Sequence[str], *, eager: bool = True
) -> tuple[Sets, dict[str, list[Timed]]]:
    """Put everything in this order; take sets as soon as they are there, or only at the end."""
    messages = {port: [Timed(time, place) for place, time in enumerate(row)] for port, row in streams.items()}
    ahead = {port: iter(row) for port, row in messages.items()}
    sets: Sets = []
    for port in order:
        message = next(ahead[port], None)
        if message is None:
            join.end(port)
        else:
            join.put(port, message)
        if eager:
            sets += drain(join)
    return sets + drain(join), messages


def drain(join: Join[Timed]) -> Sets:
    """Every set there is now; while one is looked at, none of its messages is given back."""
    sets: Sets = []
    while (found := join.take()) is not None:
        assert all(message.released == 0 for message in found.values())
        sets.append({port: (message.captured_ns, message.place) for port, message in found.items()})
    return sets


@given(cases())
def test_any_order__loses_and_doubles_nothing(case: Any) -> None:
    """Each message is released once, and counted as used or dropped, also when ports overflow."""
    streams, order, _, policy, tolerance = case
    join: Join[Timed] = Join(tuple(streams), lead="frames", policy=policy, tolerance_ns=tolerance, depth=2)

    sets, messages = play(join, streams, order)
    join.close()

    for port, row in messages.items():
        count = join.counts[port]
        assert [message.released for message in row] == [1] * len(row)
        assert count.used + count.unmatched + count.overflowed == len(row)
        assert count.used == len({found[port][1] for found in sets})


@given(cases())
def test_any_order__gives_the_same_sets(case: Any) -> None:
    """Exact and nearest: who comes first changes nothing, nor does when somebody looks, while no port overflows."""
    streams, one, other, policy, tolerance = case
    if policy == "latest":
        policy = "nearest"

    def sets(order: Sequence[str], *, eager: bool) -> tuple[Sets, Any]:
        join: Join[Timed] = Join(tuple(streams), lead="frames", policy=policy, tolerance_ns=tolerance, depth=8)
        return play(join, streams, order, eager=eager)[0], join.counts

    assert sets(one, eager=True) == sets(other, eager=True) == sets(one, eager=False)


@given(cases())
def test_any_order__gives_what_the_policy_says(case: Any) -> None:
    """A plain search over all messages finds the same sets."""
    streams, order, _, policy, tolerance = case
    if policy == "latest":
        order = [*(port for port in order if port != "frames"), *(port for port in order if port == "frames")]
    join: Join[Timed] = Join(tuple(streams), lead="frames", policy=policy, tolerance_ns=tolerance, depth=8)

    found = [{port: time for port, (time, _) in row.items()} for row in play(join, streams, order)[0]]

    assert found == expected(streams, policy, tolerance)


def expected(streams: Streams, policy: str, tolerance: int) -> list[dict[str, int]]:
    """The sets' times, found the slow way."""
    left = {port: list(row) for port, row in streams.items() if port != "frames"}
    sets = []
    for lead in streams["frames"]:
        partners = {port: partner(row, lead, policy, tolerance) for port, row in left.items()}
        if None in partners.values():
            continue
        sets.append({"frames": lead, **{port: time for port, time in partners.items() if time is not None}})
        if policy == "exact":
            for port in left:
                left[port].remove(lead)
    return sets


def partner(row: Sequence[int], lead: int, policy: str, tolerance: int) -> int | None:
    """The time that belongs to the lead's."""
    if policy == "exact":
        return lead if lead in row else None
    if policy == "latest":
        return max((time for time in row if time <= lead), default=None)
    return min(
        (time for time in row if abs(time - lead) <= tolerance), key=lambda time: (abs(time - lead), time), default=None
    )


# --- as it is written down ---


def sync(tmp_path: Path, text: str) -> Sync:
    """The `sync` section in a file of its own."""
    path = tmp_path / "fusion.yaml"
    path.write_text(f"sync: {{{text}}}\n")
    return Sync.of(load_yaml(path)["sync"], "fusion", PORTS)


def test_sync__is_read(tmp_path: Path) -> None:
    """Units count, and what is left out has a default."""
    found = sync(tmp_path, "lead: frames, policy: nearest, tolerance: 50ms, depth: 4")
    assert found == Sync("frames", "nearest", 50_000_000, 4)
    assert sync(tmp_path, "lead: gaze") == Sync("gaze", "exact", 0, 4)
    assert sorted(found.join(PORTS).counts) == sorted(PORTS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lead: frame", r"fusion.yaml:1: sync.lead: no such input; found frame; .*did you mean frames\?"),
        ("lead: frames, polcy: exact", r"fusion.yaml:1: unknown key 'polcy'.*did you mean policy\?"),
        ("lead: frames, policy: nearest", "`nearest` needs a tolerance; add one"),
        ("lead: frames, tolerance: 5ms", "`exact` has no tolerance; remove it"),
        ("lead: frames, policy: newest", r"unknown value; found 'newest'.*did you mean nearest\?"),
        ("lead: frames, depth: 65", "depth: out of range; found 65; allowed at most 64"),
        ("policy: exact", "key 'lead' is missing"),
    ],
)
def test_sync__mistakes_are_named(tmp_path: Path, text: str, words: str) -> None:
    """Each names its place and what to write."""
    with pytest.raises(ConfigError, match=words):
        sync(tmp_path, text)
