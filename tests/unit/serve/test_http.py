# SPDX-License-Identifier: Apache-2.0
"""Wrong requests, clients that leave, and a server that ends, against the shipped app on a real socket."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from dpfedge.limits import BODY_MAX_BYTES, JSON_BODY_MAX_BYTES

CHAT = "/v1/chat/completions"
SAY: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "Where to?"}]}


def saying(text: str, **more: Any) -> dict[str, Any]:
    return {**SAY, "messages": [{"role": "user", "content": text}], **more}


def eventually(check: Callable[[], bool]) -> None:
    """Wait until `check` holds; the test's own watchdog ends a wait that never does."""
    while not check():
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "x"}, "messages"),
        ({"messages": 7}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]},
            "messages[0].tool_calls",
        ),
        ({"n": 2}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"\ud800": 1}, "\ud800"),
        ({"stream_options": "\ud800"}, "\ud800"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"store": True}, "store"),
        ({"mirostat": 2}, "mirostat"),
        ({"stream_options": {"verbosity": 1}}, "verbosity"),
        ({"stream_options": 3}, "3"),
        ({"model": None}, "model"),
    ],
)
def test_chat__wrong_parameter_is_named(http: httpx.Client, change: dict[str, Any], param: str) -> None:
    """400, and the parameter that is to blame; nothing is ignored."""
    answer = http.post(CHAT, content=json.dumps({**SAY, **change}))

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_chat__list_of_text_parts_and_harmless_fields(shared: Any, http: httpx.Client) -> None:
    """Parts are joined, developer is system, and what asks for nothing is accepted."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}]
    answer = http.post(
        CHAT, json={**SAY, "messages": messages, "user": "me", "n": 1, "store": False, "stop": "X", "seed": 5}
    )

    assert answer.status_code == 200
    asked, sampling = shared.runtime.asked[-1]
    assert asked == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a\nb"}]
    assert (sampling.stop, sampling.seed, sampling.max_tokens) == (("X",), 5, None)


@pytest.mark.parametrize(
    "body", [b"", b"x", b"[1]", b"{", b"\xff\xfe", b'{"a":NaN}', b"[" * 100_000, b'{"seed":' + b"9" * 5000 + b"}"]
)
def test_json__broken_is_400(http: httpx.Client, body: bytes) -> None:
    """Anything but a JSON object is refused with a reason."""
    answer = http.post(CHAT, content=body)

    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_router__unknown_path_and_method_are_json(http: httpx.Client) -> None:
    """404 lists the endpoints, 405 the method."""
    missing, wrong = http.get("/v1/nothing"), http.get(CHAT)

    assert missing.status_code == 404
    assert "/v1/models" in missing.json()["error"]["message"]
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert "POST" in wrong.json()["error"]["message"]


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}])
def test_guard__other_host_or_origin_is_refused(http: httpx.Client, headers: dict[str, str]) -> None:
    """A web page cannot use the server through the user's browser."""
    answer = http.get("/v1/models", headers=headers)

    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "forbidden_host"


def test_body__three_gigabytes_are_refused_before_they_arrive(http: httpx.Client) -> None:
    """The declared length is enough; the answer is whole although nobody read the body."""
    sent = 0

    def body() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(3 << 10):
            sent += 1 << 20
            yield bytes(1 << 20)

    answer = http.post("/v1/audio/transcriptions", content=body(), headers={"content-length": str(3 << 30)})

    assert answer.status_code == 413
    assert str(BODY_MAX_BYTES) in answer.json()["error"]["message"]
    assert sent < 256 << 20


def test_body__chunked_json_is_bounded_while_it_arrives(http: httpx.Client) -> None:
    """A body without a length is counted."""
    answer = http.post(CHAT, content=(bytes(1 << 20) for _ in range(64)))

    assert answer.status_code == 413
    assert str(JSON_BODY_MAX_BYTES) in answer.json()["error"]["message"]


def test_connection__lives_on_after_a_refused_small_body(http: httpx.Client) -> None:
    """An unread body that has arrived whole does not end the connection."""
    refused = http.post("/v1/nothing", json={"a": 1})

    assert refused.status_code == 404
    assert "connection" not in refused.headers


def form(*parts: tuple[str, str, bytes], end: bytes = b"--B--\r\n") -> bytes:
    pieces = [
        f'--B\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + data + b"\r\n"
        for name, more, data in parts
    ]
    return b"".join(pieces) + end


FILE = ("file", '; filename="x"', b"RIFF")
MODEL = ("model", "", b"fake")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (form(MODEL), "'file' is missing"),
        (form(FILE), "'model' is missing"),
        (form(MODEL, FILE, FILE), "second part"),
        (form(MODEL, FILE, end=b""), "before its last boundary"),
        (form(MODEL, ("model", "", b"other"), FILE), "given 2 times"),
        (form(MODEL, FILE, ("response_format", "", b"xml")), "response_format"),
        (form(MODEL, FILE, ("language", "", b"de")), "language"),
        (form(MODEL, FILE, ("prompt", "", b"names")), "prompt"),
        (form(MODEL, FILE, ("temperature", "", b"0.5")), "temperature"),
        (form(MODEL, ("stream", "", b"true"), FILE, ("response_format", "", b"srt")), "a stream has no such format"),
        (form(("model", "", b"\xff"), FILE), "not UTF-8"),
        (form(("model", "", b"x" * 70_000), FILE), "longer than"),
        (form(*[("k", "", b"v")] * 70, FILE), "more than 64 parts"),
        (b"nothing like a form", "form is broken"),
        (b"", "before its last boundary"),
    ],
)
def test_transcription__broken_form_is_400(http: httpx.Client, body: bytes, text: str) -> None:
    """Whatever is wrong with the form is said; fields may come behind the file."""
    kind = {"content-type": "multipart/form-data; boundary=B"}
    answer = http.post("/v1/audio/transcriptions", content=body, headers=kind)

    assert answer.status_code == 400
    assert text in answer.json()["error"]["message"]


def test_transcription__json_body_is_400(http: httpx.Client) -> None:
    """The wrong content type is named."""
    answer = http.post("/v1/audio/transcriptions", json={})

    assert answer.status_code == 400
    assert "application/json" in answer.json()["error"]["message"]


def test_transcription__fields_behind_the_file_count(http: httpx.Client) -> None:
    """curl writes fields in the order of its arguments."""
    kind = {"content-type": "multipart/form-data; boundary=B"}
    body = form(FILE, ("response_format", "", b"text"), MODEL)
    answer = http.post("/v1/audio/transcriptions", content=body, headers=kind)

    assert answer.text == "Turn left now & then.\n"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": "  "}, "input"),
        ({"input": "x" * 4097}, "input"),
        ({"speed": 0.1}, "speed"),
        ({"speed": 10**400}, "speed"),
        ({"response_format": "wma"}, "response_format"),
        ({"instructions": "whisper"}, "instructions"),
        ({"voice": {"id": "nova"}}, "voice"),
        ({"voice": 4}, "voice"),
    ],
)
def test_speech__wrong_parameter_is_named(http: httpx.Client, change: dict[str, Any], param: str) -> None:
    """400 and the parameter."""
    answer = http.post("/v1/audio/speech", json={"model": "fake", "input": "la", "voice": "joe", **change})

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_speech__format_without_its_library(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    answer = http.post("/v1/audio/speech", json={"model": "fake", "input": "la", "voice": "joe"})

    assert answer.status_code == 400
    assert "dpfedge[media]" in answer.json()["error"]["message"]


def test_speech__stage_that_dies_cuts_the_sound(http: httpx.Client) -> None:
    """A body that is not whole must not look whole."""
    with pytest.raises(httpx.RemoteProtocolError):
        http.post("/v1/audio/speech", json={"model": "fake", "input": "dies", "voice": "joe", "response_format": "wav"})


@pytest.mark.parametrize(("text", "stream"), [("hangs", False), ("hangs", True), ("hangs later", True)])
def test_client__that_leaves_frees_its_turn(shared: Any, text: str, stream: bool) -> None:
    """Whole answers, answers not begun and answers in mid stream are cancelled."""
    before = shared.runtime.cancelled
    with raw_post(shared.url, CHAT, saying(text, stream=stream)):
        eventually(lambda: shared.runtime.running == 1)
    eventually(lambda: shared.runtime.cancelled == before + 1)

    assert shared.runtime.running == 0
    assert shared.provider.active == 0


def test_client__that_leaves_in_mid_upload_frees_its_turn(shared: Any) -> None:
    """Half a file, then nothing."""
    head = {"content-type": "multipart/form-data; boundary=B", "content-length": "100000"}
    with raw_post(shared.url, "/v1/audio/transcriptions", form(MODEL, FILE, end=b""), head):
        eventually(lambda: shared.provider.active == 1)
    eventually(lambda: shared.provider.active == 0)


def raw_post(url: str, path: str, body: Any, headers: dict[str, str] | None = None) -> socket.socket:
    """A POST on a bare socket, which a test may close at any time."""
    data = body if isinstance(body, bytes) else httpx.Request("POST", url, json=body).content
    place = urlsplit(url)
    sock = socket.create_connection((place.hostname or "", place.port or 0))
    head = {"host": place.netloc, "content-length": str(len(data)), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    sock.sendall(f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + data)
    return sock


def test_health__answers_while_stages_warm_up(own: Any) -> None:
    """healthz is 200; readyz is 503 and names the stages; requests get 503."""
    own.runtime.ready = False
    own.provider.ready_ns = None
    with httpx.Client(base_url=own.url) as client:
        ready, chat = client.get("/readyz"), client.post(CHAT, json=SAY)

        assert client.get("/healthz").status_code == 200
    assert ready.status_code == 503
    assert ready.json()["waiting"] == ["decoder", "encoder", "llm", "voice"]
    assert chat.status_code == 503
    assert chat.json()["error"]["stage"] == "decoder"


def test_status__with_the_last_turn_and_without_memory(own: Any) -> None:
    """Memory takes the kernel milliseconds: who asks often leaves it out."""
    with httpx.Client(base_url=own.url) as client:
        before = client.get("/v1/status").json()
        client.post(CHAT, json=SAY)
        light = client.get("/v1/status?memory=no").json()

    assert (before["last_turn"], before["stages"]["llm"]["rss_bytes"]) == (None, 5)
    assert "rss_bytes" not in light["stages"]["llm"]
    assert (light["last_turn"]["mode"], light["last_turn"]["finish"]) == ("chat", "stop")


def test_status__with_native_sessions(own: Any) -> None:
    """As the face tells them; null where there is none."""
    rows = {"3": {"pid": 7, "state": "idle"}}
    with httpx.Client(base_url=own.url) as client:
        before = client.get("/v1/status?memory=no").json()
        own.server.config.app.state.native = SimpleNamespace(figures=lambda: rows)
        assert (before["native"], client.get("/v1/status").json()["native"]) == (None, rows)


def test_metrics__count_requests_turns_tokens_and_links(own: Any) -> None:
    """Prometheus text with the figures of what happened."""
    with httpx.Client(base_url=own.url) as client:
        client.post(CHAT, json=SAY)
        client.get("/v1/nothing")
        answer = client.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        'dpfedge_http_requests_total{path="/v1/chat/completions",status="200"} 1',
        'dpfedge_http_requests_total{path="other",status="404"} 1',
        'dpfedge_turns_total{finish="stop",mode="chat"} 1',
        'dpfedge_tokens_total{kind="completion"} 3',
        'dpfedge_stage_seconds_bucket{mark="ttft",stage="llm",le="0.025"} 1',
        'dpfedge_link_copies_total{link="llm.voice"} 1',
        'dpfedge_stage_ready{stage="voice"} 1',
        "dpfedge_ready 1",
    ):
        assert line in answer.text.splitlines()


def test_stop__streams_get_a_last_event(own: Any) -> None:
    """A stream that cannot finish in time ends with an error event; a whole answer becomes 503."""
    answers: dict[bool, httpx.Response] = {}

    def ask(stream: bool) -> None:
        answers[stream] = httpx.post(own.url + CHAT, json=saying("hangs later", stream=stream), timeout=20)

    threads = [threading.Thread(target=ask, args=(stream,)) for stream in (True, False)]
    for thread in threads:
        thread.start()
    eventually(lambda: own.runtime.running == 2)
    own.stop()
    for thread in threads:
        thread.join(20)
    own.join()

    assert '"code":"stopping"' in answers[True].text
    assert '"Go ' in answers[True].text
    assert answers[False].status_code == 503
    assert own.runtime.cancelled == 2


def test_stop__answers_that_end_in_time_are_whole(own: Any) -> None:
    """Running answers may finish."""
    texts: list[str] = []
    thread = threading.Thread(
        target=lambda: texts.append(httpx.post(own.url + CHAT, json=saying("slow", stream=True)).text)
    )
    thread.start()
    eventually(lambda: own.runtime.running == 1)
    own.stop()
    thread.join(20)
    own.join()

    assert texts[0].endswith("data: [DONE]\n\n")


def test_eight_clients__each_gets_its_own_answer(shared: Any) -> None:
    """No answer is lost or swapped."""

    async def ask() -> list[str]:
        async with httpx.AsyncClient(base_url=shared.url, timeout=20) as client:
            texts = ["length" if index % 2 else "slow" for index in range(8)]
            answers = await asyncio.gather(*(client.post(CHAT, json=saying(text)) for text in texts))
            return [answer.json()["choices"][0]["finish_reason"] for answer in answers]

    assert asyncio.run(ask()) == ["stop", "length"] * 4


def test_headers__limit_a_request(shared: Any, http: httpx.Client) -> None:
    """Of every endpoint that answers in the stages' time."""
    headers = {"Priority": "u=1", "DPF-Deadline-Ms": "2500"}
    assert http.post(CHAT, json=SAY, headers=headers).status_code == 200
    assert (shared.runtime.limits.deadline_s, shared.runtime.limits.urgency) == (2.5, 1)
    assert http.post(CHAT, json=SAY).status_code == 200
    assert (shared.runtime.limits.deadline_s, shared.runtime.limits.urgency) == (None, 3)
    assert http.post(CHAT, json=SAY, headers={"Priority": "u=9"}).status_code == 200
    assert shared.runtime.limits.urgency == 3
    refused = http.post(CHAT, json=SAY, headers={"DPF-Deadline-Ms": "0"})
    assert (refused.status_code, "DPF-Deadline-Ms" in refused.json()["error"]["message"]) == (400, True)
