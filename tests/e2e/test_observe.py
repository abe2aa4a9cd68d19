# SPDX-License-Identifier: Apache-2.0
"""A server that is observed: its turn log, its flight recorder after `kill -9`, a spoken question again, `top`."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from dpfedge.link import Descriptor
from dpfedge.pipeline.flight import Recording, RecordKind
from dpfedge.runtime.recorded import recorded_requests
from dpfedge.stage.api import Kind

# the official client itself calls websockets in the form that websockets 17.1 deprecates
pytestmark = pytest.mark.filterwarnings(r"ignore:connect\(\) must be used:DeprecationWarning")

QUESTION = "What is the capital of France?"
SILENCE = bytes(2 * 24_000)
LONG = "Count from one to five hundred, in words."


@pytest.fixture
def observed(
    start_server: Callable[..., Any], voice_package: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Any]:
    """A server with a turn log and a flight recorder, with audio unless the test says otherwise."""
    audio = [] if getattr(request, "param", None) == "mute" else ["--flight-audio"]
    flags = ["--log", str(tmp_path / "turns.log"), "--flight-recorder", str(tmp_path / "flight"), *audio]
    one = start_server(voice_package, tmp_path, *flags)
    one.wait_ready()
    yield one
    if one.process.poll() is None:
        one.process.kill()
        one.wait()


def dpfedge(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    command = [sys.executable, "-m", "dpfedge", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def ask(server: Any, pcm: bytes) -> tuple[str, bytes]:
    """A spoken question over the Realtime protocol → the words and the sound of its answer."""
    sound = b""
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
        client.realtime.connect(model="voice") as connection,
    ):
        for start in range(0, len(pcm), 4800):
            audio = base64.b64encode(pcm[start : start + 4800]).decode()
            connection.send({"type": "input_audio_buffer.append", "audio": audio})
        while True:
            event: Any = connection.recv()
            assert event.type != "error", event
            if event.type == "response.output_audio.delta":
                sound += base64.b64decode(event.delta)
            if event.type == "response.done":
                return event.response.output[0].content[0].transcript, sound


def chat(server: Any, words: str, **fields: Any) -> httpx.Response:
    """One typed question."""
    body = {"model": "voice", "messages": [{"role": "user", "content": words}], **fields}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=100)


def logged(path: Path, until: Callable[..., None], count: int) -> list[dict[str, Any]]:
    """The turns of the log, once there are so many."""

    def turns() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in lines if line["event"] == "turn"]

    until(lambda: len(turns()) >= count)
    return turns()


def kill(server: Any) -> None:
    """`kill -9`, of the server only; its stages end by themselves."""
    server.process.send_signal(signal.SIGKILL)
    assert server.wait() == -signal.SIGKILL


def test_recorder__outlives_a_killed_server_and_repeats_its_turns(
    observed: Any, voice_package: Path, spoken: Callable[[str], bytes], tmp_path: Path, until: Callable[..., None]
) -> None:
    """A spoken question, its twin by text and a file: what is in the file afterwards is what came, and comes again."""
    words, sound = ask(observed, spoken(QUESTION) + SILENCE)
    said = chat(observed, "What is two plus two?", max_tokens=12).json()["choices"][0]["message"]["content"]
    turns = logged(tmp_path / "turns.log", until, 2)
    kill(observed)

    recording = Recording(tmp_path / "flight")
    assert recording.pid == observed.process.pid
    talked, typed = recorded_requests(recording)
    [turn] = talked.turns.values()
    assert (turn.transcript.strip(), turn.text.strip(), turn.finish) == (QUESTION, words.strip(), "stop")
    assert len(turn.audio) > len(sound) // 2 > 0
    assert typed.turns[1].text == said
    assert [line["request"] for line in turns] == [f"{talked.key:016x}", f"{typed.key:016x}"]

    again = dpfedge("replay", str(tmp_path / "flight"), str(voice_package), "--json")
    assert again.returncode == 0, again.stdout + again.stderr
    told = json.loads(again.stdout)
    found = [(one["compared"], one["differences"], one["sound"]) for one in told["requests"]]
    assert found == [([1024], [], True), ([1], [], True)]
    assert told["notes"] == []


def test_replay__of_an_interrupted_answer(
    observed: Any, voice_package: Path, spoken: Callable[[str], bytes], tmp_path: Path
) -> None:
    """What was asked after it is understood and answered with the same words: the history is the same again."""
    story, question = spoken("Tell me a long story about a dog."), spoken(QUESTION)
    with (
        openai.OpenAI(base_url=f"{observed.url}/v1", api_key="none") as client,
        client.realtime.connect(model="voice") as connection,
    ):

        def until(kind: str) -> Any:
            while (event := connection.recv()).type != kind:
                assert event.type != "error", event
            return event

        for pcm, kind in ((story, "response.output_audio.delta"), (question, "response.done")):
            for start in range(0, len(pcm + SILENCE), 4800):
                audio = base64.b64encode((pcm + SILENCE)[start : start + 4800]).decode()
                connection.send({"type": "input_audio_buffer.append", "audio": audio})
            event = until(kind)
        assert event.response.status == "cancelled"
        assert until("response.done").response.status == "completed"
    kill(observed)

    again = dpfedge("replay", str(tmp_path / "flight"), str(voice_package), "--json")
    assert again.returncode == 0, again.stdout + again.stderr
    [told] = json.loads(again.stdout)["requests"]
    assert (told["compared"], told["skipped_turns"], told["sound"]) == ([2048], [1024], False)


def test_recorder__of_a_server_killed_in_mid_answer(observed: Any, voice_package: Path, tmp_path: Path) -> None:
    """What had been said until then is there, and is how the answer begins again."""
    body = {"model": "voice", "messages": [{"role": "user", "content": LONG}], "max_tokens": 60, "stream": True}
    with httpx.stream("POST", f"{observed.url}/v1/chat/completions", json=body, timeout=100) as answer:
        for number, _ in enumerate(answer.iter_lines()):
            if number == 12:
                break
        kill(observed)

    [found] = recorded_requests(Recording(tmp_path / "flight"))
    assert (found.closed, found.ended, found.problem) == (False, 0, None)
    assert found.turns[1].text
    assert dpfedge("replay", str(tmp_path / "flight"), str(voice_package)).returncode == 0


@pytest.mark.parametrize("observed", ["mute"], indirect=True)
def test_recorder__without_audio_has_no_words(observed: Any, spoken: Callable[[str], bytes], tmp_path: Path) -> None:
    """Descriptors and events only; nothing can be repeated, and it says why. A stage's death is in it."""
    words, _ = ask(observed, spoken(QUESTION) + SILENCE)
    os.kill(observed.status()["stages"]["voice"]["pid"], signal.SIGKILL)
    while observed.status()["stages"]["voice"]["restarts"] == 0 or not observed.status()["ready"]:
        time.sleep(0.05)
    kill(observed)

    data = (tmp_path / "flight").read_bytes()
    assert words.encode() not in data
    assert QUESTION.encode() not in data
    records = Recording(tmp_path / "flight").records
    kinds = {Kind(Descriptor.read(one.payload).kind) for one in records if one.kind is RecordKind.SENT}
    assert kinds == {Kind.START, Kind.AUDIO}
    assert [one.payload for one in records if one.kind is RecordKind.STAGE_DIED] == [b"voice"]
    shown = dpfedge("replay", str(tmp_path / "flight"))
    assert "recorded without --flight-audio" in shown.stdout
    assert "stage voice died" in shown.stdout


def test_log__follows_a_rotation_and_tells_of_failures(
    observed: Any, tmp_path: Path, until: Callable[..., None]
) -> None:
    """Moved and SIGHUP: the next line is in the new file. A stage that dies, and the turn it had, are lines."""
    path = tmp_path / "turns.log"
    assert chat(observed, "Hello!", max_tokens=3).status_code == 200
    [first] = logged(path, until, 1)
    assert (first["mode"], first["outcome"], first["finish"]) == ("chat", "done", "length")
    assert first["stages"]["llm"]["completion_tokens"] == 3
    path.rename(tmp_path / "old.log")
    observed.process.send_signal(signal.SIGHUP)
    until(path.exists)

    body = {"model": "voice", "messages": [{"role": "user", "content": LONG}], "max_tokens": 200, "stream": True}
    with httpx.stream("POST", f"{observed.url}/v1/chat/completions", json=body, timeout=100) as answer:
        lines = answer.iter_lines()
        for _ in range(6):
            next(lines)
        os.kill(observed.status()["stages"]["llm"]["pid"], signal.SIGKILL)
        for _ in lines:
            pass
    [failed] = logged(path, until, 1)
    assert failed["outcome"] == "failed"
    assert failed["error"]["type"] == "StageDied"
    assert failed["error"]["where"] == "stage llm"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert {"stage_died"} <= {event["event"] for event in events}
    assert observed.stop() == 0


def test_top__of_a_running_server(server: Any) -> None:
    """Stages with processor and memory, links with their counters, and the last turn's times."""
    assert chat(server, "Hello!", max_tokens=3).status_code == 200
    done = dpfedge("top", str(server.process.pid), "--once", "--json")
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)["servers"]

    stages = {process["name"]: process for process in row["processes"]}
    assert set(stages) == {"server", "zygote", "decoder", "encoder", "llm", "voice"}
    assert all(process["cpu_percent"] is not None and process["pss_bytes"] > 0 for process in stages.values())
    assert {link["name"] for link in row["links"]} >= {"source.llm", "llm.sink"}
    assert row["last_turn"]["mode"] == "chat"
    assert row["last_turn"]["stages"]["llm"]["ttft_ms"] > 0

    shown = dpfedge("top", "--socket", str(server.socket), "--once").stdout
    assert "llm.sink" in shown
    assert "last turn  chat 1" in shown
