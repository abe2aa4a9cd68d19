# SPDX-License-Identifier: Apache-2.0
"""The official client against the shipped app on a real socket; the runtime behind it has no models."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest

MESSAGES: Any = [{"role": "user", "content": "Where to?"}]


@pytest.fixture
def client(shared: Any) -> Iterator[openai.OpenAI]:
    """The official client."""
    with openai.OpenAI(base_url=f"{shared.url}/v1", api_key="none", max_retries=0, timeout=20) as client:
        yield client


def test_models__lists_package_and_stage_models(client: openai.OpenAI) -> None:
    """The package's name and each stage's model can be asked for."""
    names = [model.id for model in client.models.list()]

    assert names == ["fake", "fake-ear", "fake-llm", "joe"]
    assert client.models.retrieve("fake-llm").owned_by == "dpfedge"


def test_model__unknown_is_404_with_the_known_ones(client: openai.OpenAI) -> None:
    """A wrong model says which are right."""
    with pytest.raises(openai.NotFoundError, match="fake-llm") as caught:
        client.chat.completions.create(model="gpt-9", messages=MESSAGES)

    assert caught.value.code == "model_not_found"


def test_chat__whole(client: openai.OpenAI) -> None:
    """One choice, its finish and the tokens."""
    answer = client.chat.completions.create(model="fake", messages=MESSAGES)

    assert answer.choices[0].message.content == "Go left 🚗"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 10


@pytest.mark.parametrize("usage", [True, False])
def test_chat__stream_has_one_role_one_finish(client: openai.OpenAI, usage: bool) -> None:
    """Role first, text, exactly one finish_reason; usage only when asked for, with no choices."""
    options: Any = {"stream_options": {"include_usage": True}} if usage else {}
    chunks = list(client.chat.completions.create(model="fake", messages=MESSAGES, stream=True, **options))

    told = [chunk for chunk in chunks if not chunk.choices]
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert [choice.delta.role for choice in choices] == ["assistant"] + [None] * (len(choices) - 1)
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
    assert "".join(choice.delta.content or "" for choice in choices) == "Go left 🚗"
    assert len(told) == usage
    assert all(chunk.usage and chunk.usage.total_tokens == 10 for chunk in told)


def test_chat__error_before_the_first_token_is_a_status(client: openai.OpenAI) -> None:
    """Also when streaming: 400 with both numbers, 429 with Retry-After."""
    with pytest.raises(openai.BadRequestError, match=r"90 tokens.*64 tokens") as caught:
        client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "too long"}], stream=True)
    assert caught.value.code == "context_length_exceeded"

    with pytest.raises(openai.RateLimitError) as busy:
        client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "busy"}])
    assert busy.value.response.headers["retry-after"] == "3"


def test_chat__error_in_mid_stream_reaches_the_client(client: openai.OpenAI) -> None:
    """The client raises what the stage said, after the text that came before."""
    stream = client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "dies"}], stream=True)
    seen = []

    with pytest.raises(openai.APIError, match="stage llm: its process died"):
        seen.extend(stream)

    assert "".join(chunk.choices[0].delta.content or "" for chunk in seen) == "Go "


def test_chat__dead_stage_is_503_and_named(client: openai.OpenAI) -> None:
    """Not streaming, the same error is a status."""
    with pytest.raises(openai.InternalServerError, match="stage llm") as caught:
        client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "dies"}])

    assert caught.value.status_code == 503


def test_chat__length(client: openai.OpenAI) -> None:
    """finish_reason tells that the limit cut the answer."""
    answer = client.chat.completions.create(
        model="fake", messages=[{"role": "user", "content": "length"}], max_tokens=1
    )

    assert answer.choices[0].finish_reason == "length"


def test_transcription__formats(client: openai.OpenAI) -> None:
    """json, text, verbose_json, srt and vtt say the same."""

    def ask(kind: Any) -> Any:
        return client.audio.transcriptions.create(model="fake", file=("x.txt", b"RIFF sound"), response_format=kind)

    assert ask("json").text == "Turn left now & then."
    assert ask("text") == "Turn left now & then.\n"
    verbose = ask("verbose_json")
    assert verbose.duration == 4.73
    assert [part.start for part in verbose.segments] == [0.1, 1.0]
    assert ask("srt").startswith("1\n00:00:00,100 --> 00:00:00,900\nTurn left\n\n2\n")
    assert ask("vtt").startswith("WEBVTT\n\n00:00:00.100 --> ")
    assert "now &amp; then." in ask("vtt")


def test_transcription__stream(client: openai.OpenAI) -> None:
    """A delta for each segment, and the whole text at the end."""
    events = list(client.audio.transcriptions.create(model="fake-ear", file=io.BytesIO(b"RIFF"), stream=True))

    deltas = "".join(event.delta for event in events if event.type == "transcript.text.delta")
    assert deltas == events[-1].text == "Turn left now & then."


def test_transcription__silence_is_an_empty_text_with_a_reason(client: openai.OpenAI) -> None:
    """No speech is no error."""
    answer = client.audio.transcriptions.create(model="fake", file=("s.wav", b"silence"))

    assert answer.text == ""
    assert answer.model_dump()["reason"] == "no speech was found"


@pytest.mark.parametrize(("data", "reason"), [(b"", "empty"), (b"<html>", "not audio")])
def test_transcription__not_audio_is_400(client: openai.OpenAI, data: bytes, reason: str) -> None:
    """The reason is told."""
    with pytest.raises(openai.BadRequestError, match=reason):
        client.audio.transcriptions.create(model="fake", file=("x.wav", data))


@pytest.mark.parametrize("kind", ["wav", "pcm", "flac", "mp3", "opus", "aac"])
def test_speech__keeps_the_pitch(client: openai.OpenAI, kind: Any) -> None:
    """A 440 Hz voice is 440 Hz in every format."""
    sound = client.audio.speech.create(model="fake", voice="joe", input="la", response_format=kind).read()

    samples, rate = decode(sound, kind)
    peak = np.argmax(np.abs(np.fft.rfft(samples * np.hanning(len(samples))))) * rate / len(samples)
    assert abs(peak - 440) < 2


def test_speech__events(client: openai.OpenAI) -> None:
    """stream_format sse sends the same bytes in base64."""
    with client.audio.speech.with_streaming_response.create(
        model="fake", voice="joe", input="la", response_format="pcm", stream_format="sse"
    ) as answer:
        lines = [line for line in answer.iter_lines() if line.startswith("data: ")]

    assert '"speech.audio.done"' in lines[-1]
    assert len(base64.b64decode(lines[0].split('"audio":"')[1].split('"')[0])) > 1000


def test_speech__unknown_voice_lists_the_known(client: openai.OpenAI) -> None:
    """The package's voices are named."""
    with pytest.raises(openai.BadRequestError, match="allowed joe"):
        client.audio.speech.create(model="fake", voice="alloy", input="la")


def decode(sound: bytes, kind: str) -> tuple[Any, int]:
    """The samples of an answer."""
    if kind == "pcm":
        return np.frombuffer(sound, "<i2").astype(float), 24_000
    av = pytest.importorskip("av")
    with av.open(io.BytesIO(sound)) as container:
        frames = [frame.to_ndarray().reshape(-1).astype(float) for frame in container.decode(audio=0)]
        return np.concatenate(frames), container.streams.audio[0].rate
