# SPDX-License-Identifier: Apache-2.0
"""The sound that a session which takes over must hear again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dpfedge.serve.realtime.tail import TAIL_S, Tail

RATE = 1000


def sound(count: int) -> bytes:
    """Samples that tell their number."""
    return b"".join((number & 0x7FFF).to_bytes(2, "little") for number in range(count))


def test_tail__is_the_last_seconds() -> None:
    """No more than a session can be late; its clock goes on."""
    tail, data = Tail(RATE), sound(10_000)
    for start in range(0, len(data), 333):
        tail.push(data[start : start + 333])
    heard = tail.take_over()

    assert heard == data[-int(2 * RATE * TAIL_S) :]
    assert tail.before_ms == 10_000 - TAIL_S * 1000


def test_tail__begins_behind_the_last_utterance() -> None:
    """What was an utterance is not heard twice; the next session's marks count from what it heard first."""
    tail = Tail(RATE)
    tail.push(sound(1500))
    tail.heard_until(1200)
    assert tail.take_over() == sound(1500)[2400:]
    assert tail.before_ms == 1200
    tail.push(sound(700))  # 300 + 700 in the new session
    tail.heard_until(600)

    assert len(tail.take_over()) == 800
    assert tail.before_ms == 1800


def test_tail__cleared() -> None:
    """And marks of the future forget nothing twice."""
    tail = Tail(RATE)
    tail.push(sound(10))
    tail.heard_until(0)
    tail.heard_until(9000)
    tail.clear()

    assert tail.take_over() == b""


def test_tail__half_a_sample_before_a_commit() -> None:
    """It is forgotten; what follows is whole."""
    tail = Tail(RATE)
    tail.push(sound(10) + b"\7")
    tail.align()
    tail.push(sound(20))
    assert tail.take_over() == sound(10) + sound(20)

    tail.push(b"\7")
    tail.align()
    tail.clear()
    tail.push(sound(4000))
    assert tail.take_over() == sound(4000)[-int(2 * RATE * TAIL_S) :]


@given(st.lists(st.integers(0, 900), max_size=20), st.integers(0, 4000))
def test_tail__keeps_whole_samples(sizes: list[int], stop_ms: int) -> None:
    """However the pieces were cut: what is forgotten is a whole number of samples."""
    tail, data, at = Tail(RATE), sound(10_000), 0
    for size in sizes:
        tail.push(data[at : at + size])
        at += size
    tail.heard_until(stop_ms)
    heard = tail.take_over()

    assert data[:at].endswith(heard)
    assert (at - len(heard)) % 2 == 0
