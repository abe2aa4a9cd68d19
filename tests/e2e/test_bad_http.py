# SPDX-License-Identifier: Apache-2.0
"""Wrong bodies, clients that leave, a port in use and a server that is told to end; real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

LONG: dict[str, Any] = {
    "model": "voice",
    "messages": [{"role": "user", "content": "Count from one to one thousand in words, one number a line."}],
    "max_tokens": 400,
}


def transcribe(server: Any, data: bytes) -> httpx.Response:
    files = {"file": ("speech.wav", data)}
    return httpx.post(f"{server.url}/v1/audio/transcriptions", data={"model": "voice"}, files=files, timeout=60)


@pytest.mark.parametrize("data", [b"", b"R", b"<!DOCTYPE html><html></html>", bytes(range(256)) * 64])
def test_file__that_is_no_audio_is_400_with_a_reason(server: Any, data: bytes) -> None:
    """Nothing is guessed, and the server lives."""
    answer = transcribe(server, data)

    assert answer.status_code == 400, answer.text
    assert len(answer.json()["error"]["message"]) > 10
    assert httpx.get(f"{server.url}/readyz").status_code == 200


def test_body__of_three_gigabytes_is_refused_early(server: Any) -> None:
    """413 from the declared length; the body never crosses the socket."""
    sent = 0

    def body() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(3 << 10):
            sent += 1 << 20
            yield bytes(1 << 20)

    headers = {"content-length": str(3 << 30), "content-type": "multipart/form-data; boundary=B"}
    answer = httpx.post(f"{server.url}/v1/audio/transcriptions", content=body(), headers=headers, timeout=60)

    assert answer.status_code == 413
    assert sent < 256 << 20


@pytest.mark.parametrize("stream", [True, False])
def test_client__that_leaves_frees_its_turn(server: Any, until: Callable[..., None], stream: bool) -> None:
    """Streaming or not, the request ends in every stage."""
    body = httpx.Request("POST", server.url, json={**LONG, "stream": stream}).content
    place = httpx.URL(server.url)
    with socket.create_connection((place.host, place.port or 0)) as sock:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {place.host}\r\ncontent-length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        until(lambda: server.status()["requests"] == 1)
    until(lambda: server.status()["requests"] == 0, seconds=5)

    answer = httpx.post(f"{server.url}/v1/chat/completions", json={**LONG, "max_tokens": 2}, timeout=60)
    assert answer.status_code == 200


def test_eight_clients__each_gets_its_own_answer(server: Any) -> None:
    """Eight at once: every one is answered, or told to try again; answers to the same question are equal."""

    def ask(_: int) -> tuple[int, str]:
        body = {**LONG, "max_tokens": 8, "temperature": 0}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120)
        text = (
            answer.json()["choices"][0]["message"]["content"]
            if answer.status_code == 200
            else answer.headers["retry-after"]
        )
        return answer.status_code, text

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))

    assert {status for status, _ in answers} <= {200, 429}
    assert len({text for status, text in answers if status == 200}) == 1


def test_port__in_use_names_its_owner(server: Any, voice_package: Path) -> None:
    """Exit 1, with the pid and the command of the process that has the port."""
    port = str(httpx.URL(server.url).port)
    command = [sys.executable, "-m", "dpfedge", "serve", str(voice_package), "--port", port]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert refused.returncode == 1
    assert f"pid {server.process.pid}" in refused.stderr
    assert "serve" in refused.stderr


def test_host__that_is_not_loopback_is_refused(voice_package: Path) -> None:
    """Exit 2 and the reason."""
    command = [sys.executable, "-m", "dpfedge", "serve", str(voice_package), "--host", "0.0.0.0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert refused.returncode == 2
    assert "only this machine" in refused.stderr


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_sigterm__ends_streams_and_every_process(own_server: Any, until: Callable[..., None]) -> None:
    """Open streams get a last event; exit 0; no process and no socket file is left."""
    pids = own_server.pids()
    texts: list[str] = []

    def ask() -> None:
        body = {**LONG, "stream": True}
        texts.append(httpx.post(f"{own_server.url}/v1/chat/completions", json=body, timeout=60).text)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: own_server.status()["requests"] == 3)
    code = own_server.stop()
    for thread in threads:
        thread.join()

    assert code == 0, own_server.log.read_text()
    assert [text for text in texts if '"stopping"' in text or "[DONE]" in text] == texts
    until(lambda: not any(alive(pid) for pid in pids))
    assert not own_server.socket.exists()


def descendants(pid: int) -> list[int]:
    """Every process below one."""
    with contextlib.suppress(OSError):
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [one for child in map(int, below) for one in (child, *descendants(child))]
    return []


def test_sigterm__of_every_process_while_they_start(
    start_server: Any, voice_package: Path, tmp_path: Path, until: Callable[..., None]
) -> None:
    """As service managers end a service: exit 0, and no stage's end is told as a fault."""
    server = start_server(voice_package, tmp_path)
    until(lambda: len(descendants(server.process.pid)) >= 3)
    for pid in (server.process.pid, *descendants(server.process.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    assert server.wait() == 0
    assert [line for line in server.log.read_text().splitlines() if not line.startswith("dpfedge: ")] == []
    assert "ERROR" not in server.log.read_text()


def test_sigterm__twice_ends_at_once(own_server: Any, until: Callable[..., None]) -> None:
    """The second signal kills everything that is left."""
    pids = own_server.pids()
    with httpx.stream(
        "POST", f"{own_server.url}/v1/chat/completions", json={**LONG, "stream": True}, timeout=60
    ) as answer:
        next(answer.iter_lines())
        own_server.process.send_signal(signal.SIGTERM)
        own_server.process.send_signal(signal.SIGTERM)
        assert own_server.wait() in (0, 1)
    until(lambda: not any(alive(pid) for pid in pids))


def test_stage__killed_comes_back_and_the_next_turn_works(own_server: Any, until: Callable[..., None]) -> None:
    """SIGKILL to the llm: the open answer is an error that names it; after the restart answers work again."""
    victim = own_server.status()["stages"]["llm"]["pid"]
    url = f"{own_server.url}/v1/chat/completions"
    with httpx.stream("POST", url, json={**LONG, "stream": True}, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        os.kill(victim, signal.SIGKILL)
        rest = list(lines)

    assert "stage llm" in "".join(rest)
    until(lambda: own_server.status()["stages"]["llm"]["state"] == "ready")
    assert httpx.post(url, json={**LONG, "max_tokens": 2}, timeout=60).status_code == 200
