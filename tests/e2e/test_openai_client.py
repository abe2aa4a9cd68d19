# SPDX-License-Identifier: Apache-2.0
"""The official client against `dpfedge serve` with the demo package."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

WORDS = "What is the capital of France?"
ASK: Any = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[openai.OpenAI]:
    """The official client."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def model(client: openai.OpenAI) -> str:
    """The package's name."""
    return next(iter(client.models.list())).id


def test_models__can_be_retrieved(client: openai.OpenAI, model: str) -> None:
    """Every listed model has its own page."""
    assert client.models.retrieve(model).id == model


def test_chat__stream_and_whole_say_the_same(client: openai.OpenAI, model: str) -> None:
    """Greedy answers are equal; the usage is the same."""
    options: Any = {"model": model, "messages": ASK, "max_tokens": 24, "temperature": 0}
    whole = client.chat.completions.create(**options)
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert text.strip()
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


def test_chat__max_tokens_cuts(client: openai.OpenAI, model: str) -> None:
    """finish_reason length and the number asked for."""
    answer = client.chat.completions.create(model=model, messages=ASK, max_tokens=3)

    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


def test_chat__seed_repeats(client: openai.OpenAI, model: str) -> None:
    """The same seed gives the same words."""
    options: Any = {"model": model, "messages": ASK, "max_tokens": 12, "temperature": 1.0, "seed": 7}
    first, second = (client.chat.completions.create(**options).choices[0].message.content for _ in range(2))

    assert first == second


def test_chat__stop_string_is_not_shown(client: openai.OpenAI, model: str) -> None:
    """The answer ends before it."""
    answer = client.chat.completions.create(model=model, messages=ASK, max_tokens=24, stop=["Paris"])

    assert answer.choices[0].finish_reason == "stop"
    assert "Paris" not in (answer.choices[0].message.content or "")


def test_chat__too_long_states_both_sizes_and_the_next_works(client: openai.OpenAI, model: str) -> None:
    """400 context_length_exceeded."""
    long: Any = [{"role": "user", "content": "word " * 20_000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=long)

    assert caught.value.code == "context_length_exceeded"
    assert sum(char.isdigit() for char in str(caught.value)) > 6
    assert client.chat.completions.create(model=model, messages=ASK, max_tokens=2).choices


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "opus", "aac"])
def test_speech__is_understood_again(client: openai.OpenAI, model: str, kind: Any) -> None:
    """What the voice says in any format, the recogniser writes; the file's name does not matter."""
    sound = client.audio.speech.create(model=model, voice="default", input=WORDS, response_format=kind).read()
    heard = client.audio.transcriptions.create(model=model, file=("no-name.bin", sound), response_format="verbose_json")

    assert heard.text.strip().lower() == WORDS.lower()
    assert 1.0 < heard.duration < 3.0


def test_transcription__stream(client: openai.OpenAI, model: str) -> None:
    """Deltas joined are the text."""
    sound = client.audio.speech.create(model=model, voice="default", input=WORDS, response_format="wav").read()
    events = list(client.audio.transcriptions.create(model=model, file=io.BytesIO(sound), stream=True))

    deltas = "".join(event.delta for event in events if event.type == "transcript.text.delta")
    assert deltas == events[-1].text
    assert deltas.lower() == WORDS.lower()


def test_socket__serves_too(server: Any, model: str, spoken: Callable[[str], bytes]) -> None:
    """The Unix socket is the same server, for this user only."""
    httpx = pytest.importorskip("httpx")
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(server.socket)), base_url="http://dpfedge") as client:
        assert client.get("/v1/models").json()["data"][0]["id"] == model
    assert server.socket.stat().st_mode & 0o077 == 0
