# SPDX-License-Identifier: Apache-2.0
"""Real speech through the demo package's decoder and encoder: every kind of file, every length, and noise."""

from __future__ import annotations

import importlib.util
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dpfedge import Runtime
from dpfedge.binding.parity import words, words_apart
from dpfedge.errors import InputError
from dpfedge.models import cached, pull
from dpfedge.pipeline.events import PartialTranscript, SpeechStarted, SpeechStopped, Transcript, TurnDone
from dpfedge.runtime import AudioFormat

RATE = 16000
RECORDING_SAMPLES = 75_653
PLAIN = "ever tried ever failed no matter"
SLOW = {"f09"}

pytestmark = pytest.mark.skipif(
    not cached("moonshine-speech-samples"), reason="`dpfedge models pull moonshine-speech-samples` has not been run"
)


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


audio_cases = _load("audio_cases")


def recording(name: str) -> tuple[Any, int]:
    """i16 samples and rate of one of the sample recordings."""
    with wave.open(str(pull("moonshine-speech-samples").path(name))) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2"), file.getframerate()


@pytest.fixture(scope="module")
def sentence() -> Any:
    """ "Ever tried. Ever failed. No matter." 4.73 s."""
    return recording("beckett.wav")[0][:RECORDING_SAMPLES]


@pytest.fixture(scope="module")
def files(sentence: Any) -> Any:
    """Every case made from the sentence."""
    return audio_cases.cases(sentence)


@pytest.fixture(scope="module")
def runtime(voice_package: Path) -> Iterator[Runtime]:
    """The demo pipeline in this process's care."""
    with Runtime.open(voice_package) as one:
        yield one


def transcribed(runtime: Runtime, data: bytes, form: AudioFormat | None = None) -> tuple[str, TurnDone]:
    """The whole text, and the end of the request."""
    events = list(runtime.transcribe(data, form or AudioFormat()))
    assert isinstance(events[-1], TurnDone)
    return " ".join(event.text for event in events if isinstance(event, Transcript)), events[-1]


CASES = audio_cases.cases(np.zeros(RATE, "<i2"))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.expect == "same"])
def test_transcribe__right_files(runtime: Runtime, files: Any, name: str) -> None:
    """Every file people send gives the words of the plain recording, and its duration."""
    case = files[name]
    if case.skip:
        pytest.skip(case.skip)

    text, done = transcribed(runtime, case.make())

    assert " ".join(words(text)) == PLAIN
    if case.exact:
        assert done.report["decoder"]["audio_ms"] == pytest.approx(1000 * RECORDING_SAMPLES / RATE, abs=10)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.expect == "refused"])
def test_transcribe__bad_files(runtime: Runtime, files: Any, name: str) -> None:
    """A file that is none is the request's error, with what was found; the next request works."""
    with pytest.raises(InputError) as caught:
        transcribed(runtime, files[name].make())

    assert caught.value.stage == "decoder"
    assert caught.value.found is not None


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.expect == "none"])
def test_transcribe__no_speech(runtime: Runtime, files: Any, name: str) -> None:
    """Silence, hiss, tone, road and too short files have no words and say why."""
    text, done = transcribed(runtime, files[name].make())

    assert text == ""
    assert done.report["decoder"]["reason"] in ("no_audio", "too_short", "no_speech")
    assert done.finish == "no_speech"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.expect == "any"])
def test_transcribe__part_of_the_words(runtime: Runtime, files: Any, name: str) -> None:
    """Cut or noisy recordings give some of the words and nothing else to speak of."""
    text, _ = transcribed(runtime, files[name].make())

    assert len(set(words(text)) - set(words(PLAIN))) <= 2


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in ("f08", "f09")]
)
def test_transcribe__long_files_lose_nothing(runtime: Runtime, files: Any, name: str) -> None:
    """The sentence over and over: as many times in the text as in the sound, in segments of at most 12 s."""
    data = files[name].make()
    times = (len(data) - 44) / 2 / RECORDING_SAMPLES
    events = list(runtime.transcribe(data))
    text = words(" ".join(event.text for event in events if isinstance(event, Transcript)))

    assert text.count("failed") == pytest.approx(times, rel=0.01, abs=1)
    assert text.count("matter") == pytest.approx(times, rel=0.01, abs=1)
    assert all(event.end_ms - event.start_ms <= 12_500 for event in events if isinstance(event, Transcript))


def test_transcribe__a_whole_page(runtime: Runtime) -> None:
    """44 s of Dickens at 48 kHz: at most 4 of 119 words differ."""
    samples, rate = recording("two_cities.wav")
    text, _ = transcribed(runtime, samples.tobytes(), AudioFormat("pcm_s16le", rate))

    assert words_apart(words(TWO_CITIES), words(text)) <= 4


@pytest.mark.parametrize("rate", [8000, 24000, 44100])
@pytest.mark.parametrize("channels", [1, 2])
def test_transcribe__raw_samples(runtime: Runtime, sentence: Any, rate: int, channels: int) -> None:
    """Declared raw samples of any rate and channel count."""
    samples = np.repeat(audio_cases.to_rate(sentence, rate)[:, None], channels, axis=1)

    text, _ = transcribed(runtime, samples.tobytes(), AudioFormat("pcm_s16le", rate, channels))

    assert " ".join(words(text)) == PLAIN


def test_transcribe__events_in_order(runtime: Runtime, sentence: Any) -> None:
    """Each segment starts, stops and is told with the same times; partial words come before."""
    events = list(runtime.transcribe(audio_cases.wav(sentence)))
    kinds = [type(event) for event in events if not isinstance(event, PartialTranscript)]

    assert kinds == [SpeechStarted, SpeechStopped, Transcript, TurnDone]
    start: Any
    stop: Any
    told: Any
    start, stop, told = (event for event in events if isinstance(event, SpeechStarted | SpeechStopped | Transcript))
    assert (start.at_ms, stop.at_ms) == (told.start_ms, told.end_ms)


def test_transcribe__nothing_is_copied(runtime: Runtime, sentence: Any) -> None:
    """Samples reach the encoder in the slot they were written to."""
    transcribed(runtime, audio_cases.wav(sentence))

    assert runtime.status()["links"]["decoder.encoder"]["copies"] == 0


TWO_CITIES = """It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of
foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of light, it was the season
of darkness, it was the spring of hope, it was the winter of despair, we had everything before us, we had nothing before
us, we were all going direct to heaven, we were all going direct the other way. In short, the period was so far like the
present period, that some of its noisiest authorities insisted on its being received, for good or for evil, in the
superlative degree of comparison only."""
