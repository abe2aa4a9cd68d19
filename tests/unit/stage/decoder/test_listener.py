# SPDX-License-Identifier: Apache-2.0
"""From bytes to utterances, with a model that hears loudness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfedge.errors import InputError
from dpfedge.limits import UTTERANCE_MAX_SAMPLES
from dpfedge.stage.api import TURN_STRIDE, Kind, Mode

PIECE = 1280  # 20 ms of f32


def pieces(samples: Any, size: int = PIECE) -> list[bytes]:
    data = samples.tobytes()
    return [data[at : at + size] for at in range(0, len(data), size)]


def times(io: Any) -> list[Any]:
    return [(stop["start_ms"], stop["at_ms"], stop["reason"]) for stop in io.of(Kind.SPEECH_STOPPED)]


def test_run__one_turn(listen: Any, talk: Any, f32: Any) -> None:
    """Speech between silences becomes one utterance with pre-roll, and its turn ends on every port."""
    io = listen(pieces(talk(-1, 0.8, -1)), form=f32, piece_ms=20)

    assert times(io) == [(992, 1824, "silence")]
    ((turn, samples, captured_ns, last),) = io.utterances
    assert (turn, last) == (TURN_STRIDE, True)
    assert samples.size == pytest.approx(16 * (320 + 832 + 250), abs=2 * 512)
    assert not np.isnan(samples).any()
    assert 1780e6 <= captured_ns <= 1840e6
    assert [row[2] for row in io.sent if row[1] is Kind.DONE] == [TURN_STRIDE, 0]


def test_run__the_words_are_whole(listen: Any, talk: Any, f32: Any) -> None:
    """Not a sample of the speech is lost or moved."""
    speech = talk(-1, 0.8, -1)
    io = listen(pieces(speech), form=f32, config={"high_pass_hz": 0})
    utterance = io.utterances[0][1]

    words = speech[16000 : 16000 + 12800]

    offset = int(np.flatnonzero(utterance == words[0])[0])
    assert np.array_equal(utterance[offset : offset + words.size], words)


@pytest.mark.parametrize("size", [1, 3, 1323, 4801, 1 << 16])
def test_run__any_piece_size(listen: Any, talk: Any, f32: Any, size: int) -> None:
    """The same utterances come out however the bytes are cut."""
    speech = talk(-0.2, 0.3, -0.6, 0.2, -0.6)
    whole, cut = listen(pieces(speech), form=f32), listen(pieces(speech, size), form=f32)

    assert times(cut) == times(whole)
    assert len(whole.utterances) == 2
    for one, other in zip(whole.utterances, cut.utterances, strict=True):
        assert np.array_equal(one[1], other[1])


def test_run__draft_before_the_endpoint(listen: Any, talk: Any, f32: Any) -> None:
    """At the first silence the words are shown and announced; the endpoint hands over the same samples."""
    io = listen(pieces(talk(-0.5, 0.8, -1)), form=f32, piece_ms=20)

    (draft,) = io.of(Kind.DRAFT, "speech")
    assert draft["samples"] == io.published[-1][1] == io.utterances[0][1].size
    assert (draft["start_ms"], draft["end_ms"]) == times(io)[0][:2]
    assert draft["captured_ns"] == io.utterances[0][2]


def test_run__speech_resumes(listen: Any, talk: Any, f32: Any) -> None:
    """Words after a draft belong to the same turn; what was shown did not change (the slot checks it)."""
    io = listen(pieces(talk(-0.5, 0.5, -0.3, 0.5, -0.3, 0.4, -1)), form=f32, piece_ms=20)

    drafts = [draft["samples"] for draft in io.of(Kind.DRAFT, "speech")]
    assert len(drafts) == 3
    assert drafts[-1] == io.utterances[0][1].size
    assert len(io.utterances) == 1


def test_run__growing_utterance_is_shown(listen: Any, talk: Any, f32: Any) -> None:
    """While someone speaks in real time, the encoder sees more and more; a file's audio is not shown early."""
    speech = talk(-0.2, 3, -1)

    live = [used for _, used, _ in listen(pieces(speech), form=f32, piece_ms=20).published]
    file = listen(pieces(speech), form=f32).published

    assert len(live) >= 8
    assert live == sorted(live)
    assert len(file) <= 3


def test_run__cap_loses_nothing(listen: Any, talk: Any, f32: Any) -> None:
    """Endless speech is handed over in turns of 15 s that continue each other."""
    speech = talk(40)
    io = listen(pieces(speech, 1 << 16), form=f32, config={"high_pass_hz": 0, "trailing_ms": 0})

    assert [reason for *_, reason in times(io)] == ["length", "length", "flush"]
    joined = np.concatenate([samples[64:] for _, samples, *_ in io.utterances])
    assert np.array_equal(joined[: speech.size], speech)


def test_run__many_pauses_fit_the_slot(listen: Any, talk: Any, f32: Any) -> None:
    """Silence written behind drafts never runs over the slot."""
    stutter = talk(*[0.12, -0.3] * 80)
    io = listen(pieces(stutter), form=f32, config={"trailing_ms": 1000})

    assert all(samples.size <= UTTERANCE_MAX_SAMPLES for _, samples, *_ in io.utterances)
    assert "length" in {reason for *_, reason in times(io)}


def test_run__silence_and_click(listen: Any, talk: Any, f32: Any) -> None:
    """Nothing said is no turn, and no slot is taken."""
    io = listen(pieces(talk(-2, 0.04, -2)), form=f32)

    assert io.utterances == []
    assert io.of(Kind.DONE)[-1]["reason"] == "no_speech"
    assert io.of(Kind.SPEECH_STARTED) == []


def test_run__commit(listen: Any, talk: Any, f32: Any) -> None:
    """FLUSH ends the turn at once; without endpointing it is the only end."""
    io = listen(pieces(talk(-0.2, 0.5, -1.5)), form=f32, vad={"type": "none"}, commands={80: Kind.FLUSH})

    assert [reason for *_, reason in times(io)] == ["flush"]
    assert io.of(Kind.DRAFT, "speech")[0]["samples"] == io.utterances[0][1].size


def test_run__commit_without_speech(listen: Any, talk: Any, f32: Any) -> None:
    """FLUSH with nothing said closes a turn without words."""
    io = listen(pieces(talk(-0.5)), form=f32, commands={10: Kind.FLUSH})

    ((turn, samples, _, last),) = io.utterances
    assert (turn, samples.size, last) == (TURN_STRIDE, 0, True)
    assert io.of(Kind.DONE)[0]["reason"] == "no_speech"


def test_run__clear(listen: Any, talk: Any, f32: Any) -> None:
    """CLEAR drops the words of a turn and closes it; the next turn is whole."""
    io = listen(pieces(talk(0.6, -1, 0.6, -1)), form=f32, commands={20: Kind.CLEAR})

    assert [samples.size > 0 for _, samples, *_ in io.utterances] == [False, True, True]
    assert times(io)[0][2] == "clear"


@pytest.mark.parametrize("command", [Kind.FLUSH, Kind.CLEAR])
def test_run__half_a_sample_before_a_command(listen: Any, talk: Any, command: Kind) -> None:
    """It is no part of what follows: else all of that would be noise, to the end of the session."""
    form = {"encoding": "pcm_s16le", "rate": 16_000, "channels": 1}
    sound = pieces((talk(0.6, -1) * 32767).astype("<i2"))
    whole, odd = (listen(first + sound, form=form, commands={0: command}) for first in ([b"\0\0"], [b"\0\0\7"]))

    heard = [[samples for _, samples, *_ in io.utterances if samples.size] for io in (whole, odd)]
    assert len(heard[0]) == len(heard[1]) == 1
    assert np.array_equal(*(one[0] for one in heard))


def test_run__second_turn_has_its_own_pre_roll(listen: Any, talk: Any, f32: Any) -> None:
    """What follows a turn closely begins with the silence between, not with the words before."""
    io = listen(pieces(talk(0.5, -0.5, 0.5, -1)), form=f32)

    assert [turn for turn, *_ in io.utterances] == [TURN_STRIDE, 2 * TURN_STRIDE]
    second = io.utterances[1][1]
    assert np.abs(second[64:2048]).max() < 0.1


def test_run__quiet_speaker_is_made_louder(listen: Any, talk: Any, f32: Any) -> None:
    """A whole utterance gets one gain; the silence kept for the next one is as it was."""
    speech = talk(-0.3, 0.6, -0.8, 0.6, -0.8, amplitude=0.002)
    io = listen(pieces(speech), form=f32, config={"start_threshold": 0.05, "end_threshold": 0.03, "high_pass_hz": 0})

    assert len(io.utterances) == 2
    for _, samples, *_ in io.utterances:
        assert np.abs(samples).max() == pytest.approx(0.048, rel=0.1)


def test_run__numbers_go_on(listen: Any, talk: Any, f32: Any) -> None:
    """A conversation that is told again after a restart continues its numbers, above typed turns too."""
    io = listen(pieces(talk(0.5, -0.5)), form=f32, turn=3 * TURN_STRIDE + 5)

    assert [turn for turn, *_ in io.utterances] == [4 * TURN_STRIDE]


def test_transcribe__segments_and_end(listen: Any, talk: Any, f32: Any, audio: Any) -> None:
    """A file gives segments numbered from 1, then its end on both ports."""
    data = audio.wav((talk(-0.5, 1, -2, 1, -0.2) * 32767).astype("<i2"))
    io = listen([data], mode=Mode.TRANSCRIBE)

    assert [(turn, last) for turn, _, _, last in io.utterances] == [(1, False), (2, False)]
    report = io.of(Kind.DONE)[-1]
    assert (report["container"], report["segments"], report["audio_ms"]) == ("wav", 2, 4700)
    assert io.of(Kind.DONE, "speech") == [report]


def test_transcribe__long_speech_is_cut_without_loss(listen: Any, talk: Any, f32: Any) -> None:
    """Half a minute without a pause becomes segments of at most 12 s that continue each other."""
    speech = talk(31)
    io = listen([speech.tobytes()], mode=Mode.TRANSCRIBE, form=f32, config={"high_pass_hz": 0, "trailing_ms": 0})

    assert all(samples.size <= 12.4 * 16000 for _, samples, *_ in io.utterances)
    joined = np.concatenate([samples[64:] for _, samples, *_ in io.utterances])
    assert np.array_equal(joined[: speech.size], speech)


@pytest.mark.parametrize(
    ("samples", "reason"), [(0, "no_audio"), (1, "too_short"), (80, "too_short"), (8000, "no_speech")]
)
def test_transcribe__short_and_silent(listen: Any, audio: Any, samples: int, reason: str) -> None:
    """Files of any length without words say why there are none."""
    io = listen([audio.wav(np.zeros(samples, "<i2"))], mode=Mode.TRANSCRIBE)

    assert io.of(Kind.DONE)[-1]["reason"] == reason


def test_transcribe__too_long(listen: Any, monkeypatch: pytest.MonkeyPatch, audio: Any) -> None:
    """Audio beyond the limit is refused while it is read."""
    monkeypatch.setattr("dpfedge.stage.decoder.listener.AUDIO_MAX_SECONDS", 1)

    with pytest.raises(InputError, match="too long"):
        listen([audio.wav(np.zeros(17000, "<i2"))], mode=Mode.TRANSCRIBE)


def test_transcribe__empty_body(listen: Any) -> None:
    """No byte at all is an error of the request."""
    with pytest.raises(InputError, match="body is empty"):
        listen([], mode=Mode.TRANSCRIBE)


def test_close__in_the_middle_of_speech(listen: Any, talk: Any, f32: Any) -> None:
    """A request that goes away gives its slot back and every message was released."""
    io = listen(pieces(talk(1)), form=f32, end=False)

    assert io.abandoned == 1
