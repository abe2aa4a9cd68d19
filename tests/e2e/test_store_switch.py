# SPDX-License-Identifier: Apache-2.0
"""A running server goes from one installed package to another and back while people use it; nobody notices."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from made_variant import variant

from dpfedge.package import open_package

# the official client itself calls websockets in the form that websockets 17.1 deprecates
pytestmark = pytest.mark.filterwarnings(r"ignore:connect\(\) must be used:DeprecationWarning")

QUESTION = "What is the capital of France?"
SILENCE = bytes(2 * 24_000)
ROUNDS = 3


class Shop:
    """A store, the versions of the demo package, and a server of it."""

    def __init__(self, folder: Path, package: Path, key: Path, start: Callable[..., Any]) -> None:
        self.root = folder / "a store ü"
        self.environ = {**os.environ, "DPFEDGE_STORE": str(self.root), "XDG_RUNTIME_DIR": str(folder)}
        self.package, self.new = package, variant(package, folder / "new.dpfbin", "9.9.9", key)
        self.broken = variant(package, folder / "broken.dpfbin", "9.9.10", key, broken="llm")
        self.server: Any = None
        self.run("install", str(package), "--board", "host")
        self.server = start(folder, self.environ)

    def run(self, *arguments: str, code: int = 0) -> str:
        """One command; what it wrote to stdout, or to stderr when it was to fail."""
        command = [sys.executable, "-m", "dpfedge", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environ, timeout=300)
        assert done.returncode == code, (done.stdout, done.stderr, self.server and self.server.log.read_text())
        return done.stdout if code == 0 else done.stderr

    def version(self) -> str:
        """What new requests are answered with."""
        return str(self.server.status()["version"])


@pytest.fixture(scope="module")
def shop(
    voice_package: Path, demo_key: Path, tmp_path_factory: pytest.TempPathFactory, start_server: Any
) -> Iterator[Shop]:
    """One shop for all tests, which leave the demo's version active."""

    def start(folder: Path, environ: dict[str, str]) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DPFEDGE_STORE", environ["DPFEDGE_STORE"])
            server = start_server(Path("voice"), folder, "--board", "host")
        server.wait_ready()
        return server

    one = Shop(tmp_path_factory.mktemp("shop"), voice_package, demo_key, start)
    yield one
    assert one.server.stop() == 0, one.server.log.read_text()


class Load:
    """Calls `work(turn)` in a thread, over and over; `results` are what it returned, `failure` what it raised."""

    def __init__(self, work: Callable[[int], Any]) -> None:
        self._work, self._end = work, threading.Event()
        self.results: list[Any] = []
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self.results.append(self._work(len(self.results)))
        except BaseException as error:  # noqa: BLE001 - the test shows it
            self.failure = error

    def stop(self) -> list[Any]:
        """The results; raises what the work raised."""
        self._end.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure
        return self.results


def chat(client: httpx.Client, **more: Any) -> str:
    """One answer."""
    messages = [{"role": "user", "content": QUESTION}]
    answer = client.post("/v1/chat/completions", json={"model": "voice", "messages": messages, **more})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def transcribe(client: httpx.Client, wav: bytes) -> str:
    """The words of a recording."""
    files = {"file": ("a.wav", wav, "audio/wav")}
    answer = client.post("/v1/audio/transcriptions", data={"model": "voice"}, files=files)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["text"])


def speak(client: httpx.Client, form: str) -> bytes:
    """The question, said by the server's voice."""
    body = {"model": "voice", "voice": "default", "input": QUESTION, "response_format": form}
    answer = client.post("/v1/audio/speech", json=body)
    assert answer.status_code == 200, answer.text
    return answer.content


def story(client: httpx.Client) -> str:
    """A long streamed answer; how it ended."""
    body = {
        "model": "voice",
        "stream": True,
        "max_tokens": 120,
        "messages": [{"role": "user", "content": "Count to 99."}],
    }
    finish = ""
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                finish = event["choices"][0]["finish_reason"] or finish
    return finish


def talk(connection: Any, pcm: bytes) -> tuple[str, str, int]:
    """One spoken turn: what was heard, how the answer ended, the tokens that were read for it."""
    for start in range(0, len(pcm), 4800):
        audio = base64.b64encode(pcm[start : start + 4800]).decode()
        connection.send({"type": "input_audio_buffer.append", "audio": audio})
    heard = ""
    while (event := connection.recv()).type != "response.done":
        assert event.type != "error", event
        if event.type == "conversation.item.input_audio_transcription.completed":
            heard = event.transcript
    return heard, event.response.status, event.response.usage.input_tokens


def test_switch__no_request_fails(shop: Shop, until: Callable[..., None]) -> None:
    """Chats, transcriptions, speech, a long answer and one conversation go on through installs and rollbacks."""
    with (
        httpx.Client(base_url=shop.server.url, timeout=120) as client,
        openai.OpenAI(base_url=f"{shop.server.url}/v1", api_key="none") as official,
        official.realtime.connect(model="voice") as connection,
    ):
        pcm, wav = speak(client, "pcm") + SILENCE, speak(client, "wav")
        before = set(shop.server.pids())
        loads = [
            Load(lambda turn: chat(client, max_tokens=16)), Load(lambda turn: transcribe(client, wav)),
            Load(lambda turn: talk(connection, pcm)),
        ]  # fmt: skip
        long = Load(lambda turn: story(client))
        versions = [shop.version()]
        for number in range(ROUNDS):
            until(lambda: shop.server.status()["ending"] == 0, 120)
            again = ("rollback", "voice") if number % 2 else ("install", str(shop.new), "--board", "host")
            shop.run(*again, "--activate")
            versions.append(shop.version())
        until(lambda: loads[2].failure is not None or len(loads[2].results) > 2 * ROUNDS, 240)
        chats, words, turns, ends = (load.stop() for load in (*loads, long))

    assert versions == [versions[0] if number % 2 == 0 else "9.9.9" for number in range(ROUNDS + 1)]
    assert len(set(chats)) == 1
    assert set(words) == {QUESTION}
    assert set(ends) <= {"stop", "length"}
    assert {(heard, status) for heard, status, _ in turns} == {(QUESTION, "completed")}
    first, *later = (count for _, _, count in turns)
    assert min(later) > first, "the conversation was forgotten"
    until(lambda: shop.server.status()["ending"] == 0, 120)
    gone = before - {shop.server.process.pid}
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in gone))
    shop.run("rollback", "voice", "--activate")


def test_switch__an_idle_conversation_moves_at_once(shop: Shop, until: Callable[..., None]) -> None:
    """Nobody says a word, and the old stages end all the same; then the conversation goes on where it was."""
    with (
        httpx.Client(base_url=shop.server.url, timeout=120) as client,
        openai.OpenAI(base_url=f"{shop.server.url}/v1", api_key="none") as official,
        official.realtime.connect(model="voice") as connection,
    ):
        pcm = speak(client, "pcm") + SILENCE
        first = talk(connection, pcm)
        old = set(shop.server.pids()) - {shop.server.process.pid}
        shop.run("install", str(shop.new), "--board", "host", "--activate")
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in old))
        second = talk(connection, pcm)

    assert (first[:2], second[:2]) == ((QUESTION, "completed"), (QUESTION, "completed"))
    assert second[2] > first[2]
    shop.run("rollback", "voice", "--activate")


def test_switch__that_cannot_be_is_rolled_back(shop: Shop) -> None:
    """The new package does not become warm: exit code 1, the reason, slots and server as before, no request failed."""
    slots = (shop.root / "names" / "voice.json").read_bytes()
    version, pids = shop.version(), shop.server.pids()
    with httpx.Client(base_url=shop.server.url, timeout=120) as client:
        load = Load(lambda turn: chat(client, max_tokens=16))
        told = shop.run("install", str(shop.broken), "--board", "host", "--no-golden", "--activate", code=1)
        chats = load.stop()

    assert len(set(chats)) == 1
    pid = shop.server.process.pid
    first, last = told.splitlines()[0], told.splitlines()[-1]
    assert first == f"dpfedge: server pid {pid} warms the package beside the old one"
    assert last.startswith(
        f"dpfedge: server pid {pid}: the running server cannot take the package and serves the old one on; "
        "found stage llm: "
    )
    assert last.endswith("; the slots are as they were")
    assert (shop.root / "names" / "voice.json").read_bytes() == slots
    assert (shop.version(), shop.server.pids()) == (version, pids)


def test_install__wrong_answers_are_not_activated(shop: Shop, tmp_path: Path, demo_key: Path) -> None:
    """Every digest and the signature are right, and the machine answers otherwise than the compiler's: exit code 1."""
    with open_package(shop.package, check="fast") as package:
        if not package.manifest.golden:
            pytest.skip("the demo package has no golden records: build it again")
    slots = (shop.root / "names" / "voice.json").read_bytes()
    spoiled = variant(shop.package, tmp_path / "spoiled.dpfbin", "9.9.11", demo_key, wrong="vad")
    told = shop.run("install", str(spoiled), "--board", "host", "--activate", code=1)

    assert "golden run failed on" in told
    assert str(spoiled) in told
    assert (shop.root / "names" / "voice.json").read_bytes() == slots
    assert list((shop.root / "incoming").iterdir()) == []


def test_gc__leaves_what_a_server_has_mapped(shop: Shop) -> None:
    """Also when its name was removed; a second server of the name is told that it is gone."""
    told = shop.run("remove", "voice")
    files = {path.suffix for path in (shop.root / "files").iterdir()}
    with httpx.Client(base_url=shop.server.url, timeout=120) as client:
        assert chat(client, max_tokens=16)
    refused = shop.run("serve", "voice", code=4)
    shop.run("install", str(shop.package), "--board", "host")

    assert "in use by pid" in told
    assert {".dpfbin", ".json"} <= files
    assert refused == (
        "dpfedge: voice: there is no such file, and no package of this name is installed; "
        f"allowed no name in {shop.root}, or a file; see `dpfedge list`, or give the path of a .dpfbin file\n"
    )
