# SPDX-License-Identifier: Apache-2.0
"""libdpfedge and the head unit examples before a real server: spoken turns, stops, and the death of either side."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_client import (
    ANSWER_DONE,
    ANSWER_STARTED,
    ANSWER_TEXT,
    GONE,
    NO_SERVER,
    SPEECH_STARTED,
    TIMEOUT,
    TRANSCRIPT,
    Client,
    ClientError,
    installed,
    run,
)

ROOT = Path(__file__).parents[2]
QUESTION = "What is the capital of France?"
SILENCE = bytes(2 * 24_000)
COMPLETED, CANCELLED = 0, 2
BY_HAND = 1


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where libdpfedge is installed."""
    return installed(tmp_path_factory.mktemp("libdpfedge"))


@pytest.fixture(scope="module")
def examples(prefix: Path) -> Path:
    """The examples, built as their README says."""
    found = f"PKG_CONFIG_PATH={prefix}/lib/pkgconfig"
    run("make", "-C", str(ROOT / "examples/head_unit"), found, f"OUT={prefix}/examples")
    return prefix / "examples"


def native(server: Any) -> Path:
    """The server's native socket."""
    path: Path = server.socket.with_suffix(".native")
    return path


def hear_all(client: Client) -> bytes:
    """An answer's sound, to its end."""
    pcm, piece = b"", client.sound()
    while not piece.last:
        pcm += piece.pcm
        piece = client.sound()
    return pcm


def test_example_in_c__a_spoken_question_and_its_spoken_answer(
    examples: Path, prefix: Path, server: Any, spoken: Callable[[str], bytes], tmp_path: Path
) -> None:
    """Words on stdout, sound in a file, and no copy in the client."""
    question, answer = tmp_path / "question.pcm", tmp_path / "answer.pcm"
    question.write_bytes(spoken(QUESTION))
    arguments = (str(question), str(answer), "24000", str(native(server)))
    shown = run(str(examples / "head_unit"), *arguments, LD_LIBRARY_PATH=f"{prefix}/lib")
    heard = re.search(r"^heard: (.*)$", shown, re.MULTILINE)
    assert heard is not None
    assert heard.group(1).lower() == QUESTION.lower()
    assert "done: " in shown
    assert re.search(r"copies here: 0 of \d+ pieces sent", shown)
    assert len(answer.read_bytes()) > 20_000


def test_example_in_cpp__stops_and_asks_again(examples: Path, prefix: Path, server: Any) -> None:
    """The first answer is cut in mid sentence, the second is whole."""
    asked = ("Tell me a long story about the sea.", QUESTION)
    environ = {"DPFEDGE_NATIVE": str(native(server)), "LD_LIBRARY_PATH": f"{prefix}/lib"}
    shown = run(str(examples / "head_unit_cc"), *asked, **environ)
    first, second = shown.splitlines()
    assert first.endswith("stopped]")
    assert "Paris" in second
    assert second.endswith("whole]")


def test_turn__its_sound_is_what_the_voice_made(prefix: Path, server: Any, spoken: Callable[[str], bytes]) -> None:
    """Pushed in odd pieces; heard, answered and spoken."""
    pcm = spoken(QUESTION) + SILENCE
    with Client(prefix, native(server)) as client:
        for at in range(0, len(pcm), 1322):
            client.push(pcm[at : at + 1322])
        events = client.until(ANSWER_DONE)
        sound = hear_all(client)
        stats = client.stats()
        *_, row = server.status()["native"].values()
    assert (row["pid"], row["state"], row["utterances"], row["answers"]) == (os.getpid(), "idle", 1, 1)
    assert (row["heard_bytes"], row["sound_bytes"], row["waiting_bytes"]) == (len(pcm), len(sound), 0)
    [heard] = [event.text for event in events if event.kind == TRANSCRIPT]
    assert heard.lower() == QUESTION.lower()
    assert "Paris" in "".join(event.text for event in events if event.kind == ANSWER_TEXT)
    assert events[-1].code == COMPLETED
    assert len(sound) > 20_000
    assert (stats["copied_bytes"], stats["sound_bytes_copied"]) == (len(pcm), len(sound))


def test_push_to_talk__only_a_commit_ends_an_utterance(
    prefix: Path, server: Any, spoken: Callable[[str], bytes]
) -> None:
    """However long the pause in it; what was cleared before is not heard."""
    with Client(prefix, native(server), flags=BY_HAND) as client:
        client.push(spoken("Tell me a long story about the sea."))
        client.must("clear", 5000)
        client.push(spoken(QUESTION) + SILENCE + spoken(QUESTION))
        client.must("commit", 5000)
        client.must("respond", 5000)
        events = client.until(ANSWER_DONE)
    # an utterance that was cleared ends without words
    [heard] = [event.text for event in events if event.kind == TRANSCRIPT and event.text]
    assert heard.lower() == f"{QUESTION} {QUESTION}".lower()
    assert [event.kind for event in events].count(SPEECH_STARTED) == 0


def test_barge_in__the_next_turn_is_right(prefix: Path, server: Any, spoken: Callable[[str], bytes]) -> None:
    """Speech during the answer silences it; what was said is answered."""
    with Client(prefix, native(server)) as client:
        client.push(spoken("Tell me a long story about the sea.") + SILENCE)
        client.until(ANSWER_TEXT)
        first = client.sound()
        client.push(spoken(QUESTION) + SILENCE)
        client.until(SPEECH_STARTED)
        client.stop(200)
        events = client.until(TRANSCRIPT)
        assert events[-1].text.lower() == QUESTION.lower()
        second = client.until(ANSWER_STARTED)[-1].number
        piece = client.sound()
        while piece.number != second:
            assert piece.pcm == b"", "sound of the answer that was stopped"
            piece = client.sound()
        assert client.until(ANSWER_DONE)[-1].code == COMPLETED
    assert (first.number, second) == (1, 2)


def test_stop__nothing_of_the_answer_is_heard_after_it(prefix: Path, server: Any) -> None:
    """However much of it was made before."""
    with Client(prefix, native(server)) as client:
        client.say("Tell me a long story about the sea.")
        client.must("respond", 5000)
        client.sound()
        client.stop()
        piece = client.sound()
        assert (piece.last, piece.pcm) == (True, b"")
        with pytest.raises(ClientError) as caught:
            client.sound(300)
        assert caught.value.status == TIMEOUT
        assert client.until(ANSWER_DONE)[-1].code == CANCELLED


def test_client__that_is_killed_frees_its_session(
    prefix: Path, server: Any, spoken: Callable[[str], bytes], until: Callable[..., None], tmp_path: Path
) -> None:
    """kill -9 in the middle of an answer: no request is left in any stage."""
    question = tmp_path / "question.pcm"
    question.write_bytes(spoken(QUESTION) + SILENCE)
    script = f"""
import sys, time
sys.path[:0] = {sys.path!r}
from pathlib import Path
from made_client import Client
client = Client(Path({str(prefix)!r}), Path({str(native(server))!r}))
client.push(Path({str(question)!r}).read_bytes())
client.sound()
print("speaking", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"speaking\n"
        assert server.status()["requests"] == 1
        process.send_signal(signal.SIGKILL)
    until(lambda: server.status()["requests"] == 0)
    assert server.status()["active"] == 0


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_server__that_ends_is_named_and_another_is_found(
    prefix: Path, voice_package: Path, start_server: Any, tmp_path: Path, end: signal.Signals
) -> None:
    """A thread that waits is told; a client opens a session with the server that comes back."""
    path = tmp_path / "again.sock"
    one = start_server(voice_package, tmp_path, "--socket", str(path))
    one.wait_ready()
    told: list[int] = []
    with Client(prefix, native(one)) as client:

        def wait() -> None:
            try:
                while True:
                    client.sound(-1)
            except ClientError as error:
                told.append(error.status)

        waiting = threading.Thread(target=wait)
        waiting.start()
        one.process.send_signal(end)
        one.wait()
        waiting.join(60)
        assert told == [GONE]
        assert client.state == GONE
        with pytest.raises(ClientError) as caught:
            client.push(SILENCE)
        assert caught.value.status == GONE
    with pytest.raises(ClientError) as caught:
        Client(prefix, native(one))
    assert caught.value.status == NO_SERVER
    another = start_server(voice_package, tmp_path, "--socket", str(path))
    try:
        with Client(prefix, native(another), wait_ms=120_000) as client:
            client.say(QUESTION)
            client.must("respond", 5000)
            assert client.until(ANSWER_DONE)[-1].code == COMPLETED
    finally:
        another.stop()
