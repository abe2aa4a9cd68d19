# SPDX-License-Identifier: Apache-2.0
"""Where speech starts, pauses and ends."""

from __future__ import annotations

from typing import Any

from dpfedge.stage.decoder.config import DecoderConfig
from dpfedge.stage.decoder.segmenter import Change, Segmenter


def changes(probabilities: list[float], *, long_audio: bool = False, **settings: Any) -> list[tuple[int, str]]:
    """(frames seen, change) of each change."""
    segmenter = Segmenter(DecoderConfig.of(settings), long_audio=long_audio)
    found = []
    for probability in probabilities:
        change = segmenter.frame(probability)
        if change is not None:
            found.append((segmenter.now, change.value))
    return found


def test_frame__speech_and_endpoint() -> None:
    """Three frames of speech start a turn; 200 ms of silence draft it, 400 ms end it."""
    assert changes([0.0] * 5 + [0.9] * 10 + [0.1] * 20) == [(8, "started"), (22, "paused"), (28, "ended")]


def test_frame__start_is_the_first_frame_of_speech() -> None:
    """The start lies where the run began, not where it was certain."""
    segmenter = Segmenter(DecoderConfig())
    for probability in [0.0] * 5 + [0.9] * 3:
        segmenter.frame(probability)

    assert (segmenter.speaking, segmenter.start) == (True, 5)


def test_frame__click_is_no_speech() -> None:
    """Two frames are too short."""
    assert changes(([0.0] * 5 + [0.9] * 2) * 10) == []


def test_frame__between_the_thresholds() -> None:
    """A weak frame neither starts speech nor ends a run of it."""
    assert changes([0.4] * 20) == []
    assert changes([0.9, 0.4, 0.9]) == [(3, "started")]
    assert changes([0.9] * 3 + [0.4] * 100) == [(3, "started")]


def test_frame__pause_goes_on_below_the_start_threshold() -> None:
    """A breath between the thresholds does not reset the silence."""
    assert changes([0.9] * 3 + ([0.1] * 2 + [0.4]) * 5)[-1] == (16, "ended")


def test_frame__speech_resumes_after_a_draft() -> None:
    """Speech after a draft takes it back, and a new pause gives a new one."""
    heard = changes([0.9] * 5 + [0.1] * 8 + [0.9] * 3 + [0.1] * 13)

    assert heard == [(3, "started"), (12, "paused"), (14, "resumed"), (23, "paused"), (29, "ended")]


def test_frame__hard_cap() -> None:
    """A turn ends at its longest, and speech that goes on starts the next one."""
    heard = changes([0.9] * 80, max_utterance_ms=1024)

    assert heard == [(3, "started"), (32, "ended"), (35, "started"), (64, "ended"), (67, "started")]


def test_frame__without_endpointing() -> None:
    """When the caller commits, silence ends nothing."""
    segmenter = Segmenter(DecoderConfig(), endpointing=False)

    assert [segmenter.frame(p) for p in [0.9] * 3 + [0.0] * 100].count(None) == 102


def test_frame__long_audio_keeps_pauses_inside() -> None:
    """In a file, a pause that would end a turn stays inside a segment."""
    assert changes([0.9] * 5 + [0.0] * 20 + [0.9] * 5, long_audio=True) == [(3, "started")]
    assert changes([0.9] * 5 + [0.0] * 47, long_audio=True)[-1] == (52, "ended")


def test_frame__long_audio_takes_a_short_pause_when_long() -> None:
    """Once a segment is long, the next short pause ends it."""
    heard = changes([0.9] * 300 + [0.0] * 8, long_audio=True)

    assert heard == [(3, "started"), (308, "ended")]


def test_frame__long_audio_is_cut_where_it_is_quietest() -> None:
    """Without any pause, a segment is cut behind the weakest frame of its end; speech goes on."""
    segmenter = Segmenter(DecoderConfig(), long_audio=True)
    ends = []
    for index in range(800):
        if segmenter.frame(0.5 if index in (50, 340, 700) else 0.9) is Change.ENDED:
            ends.append((segmenter.now, segmenter.end, segmenter.speaking))

    assert ends == [(375, 341, True), (716, 701, True)]
    assert segmenter.start == 701


def test_candidate__first_doubtful_frame() -> None:
    """What may be speech is known before it is certain."""
    segmenter = Segmenter(DecoderConfig())
    segmenter.frame(0.0)
    assert segmenter.candidate == 1
    segmenter.frame(0.9)
    segmenter.frame(0.9)

    assert segmenter.candidate == 1


def test_finish__now() -> None:
    """A commit ends speech behind its last word."""
    segmenter = Segmenter(DecoderConfig())
    for probability in [0.9] * 5 + [0.1] * 3:
        segmenter.frame(probability)
    segmenter.finish("flush")

    assert (segmenter.speaking, segmenter.end, segmenter.reason) == (False, 5, "flush")
