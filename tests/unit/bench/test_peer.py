# SPDX-License-Identifier: Apache-2.0
"""The baseline's process: asked in lines, heard in lines; a toy stands in for the script."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.bench import peer
from dpfedge.bench.peer import PlainPeer, plain_setup
from dpfedge.errors import Unavailable

SCRIPT = """#!{python}
import json, os, sys
setup = json.loads(sys.stdin.readline())
if setup.get("dies"):
    sys.exit(3)
print(json.dumps({{"load_ms": 1.5, "ready_ns": setup["at"]}}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["do"] == "memory":
        print(json.dumps({{"rss_bytes": 7, "quiet": int(os.environ["ORT_DISABLE_TELEMETRY"])}}), flush=True)
    else:
        found = {{"first_audio_ns": 5, "transcript": message["pcm"], "heard_by": "nobody"}}
        print(json.dumps(found), flush=True)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline that is always installed."""
    path = tmp_path / "plain"
    path.write_text(SCRIPT.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.mark.usefixtures("script")
def test_peer__answers_turns_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it knows that we do not note is left out; its onnxruntime is told to write no telemetry."""
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    with PlainPeer({"at": 10**18}) as one:
        assert one.load_ms == 1.5
        assert one.ready_ms > 0
        turn = one.turn(Path("q.pcm"), 320)
        assert (turn.first_audio_ns, turn.transcript, turn.text) == (5, "q.pcm", "")
        assert one.memory() == {"rss_bytes": 7, "quiet": 1}
    assert one._process.returncode == 0


@pytest.mark.usefixtures("script")
def test_peer__that_ends_says_with_what_code() -> None:
    """An error, and no wait for an answer that will not come."""
    with pytest.raises(Unavailable, match="the plain baseline ended; found exit code 3") as caught:
        PlainPeer({"dies": True})
    assert caught.value.where == "bench"


def test_peer__without_its_libraries_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names that pip knows."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "llama_cpp" else object())

    with pytest.raises(Unavailable, match=r"found llama-cpp-python; pip install 'dpfedge\[bench\]'"):
        PlainPeer({})


def test_setup__has_the_packages_own_prompt_and_the_original_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides are asked the same; nothing is fetched here."""
    monkeypatch.setattr(peer, "pull", lambda name: SimpleNamespace(path=lambda file: Path("/m") / name / file))
    llm = {"model": "llm", "system": "Be brief.", "examples": [{"user": "a", "assistant": "b"}]}
    sampling: dict[str, Any] = {"sampling": {"max_tokens": 9, "repeat_penalty": 1.1}}
    setup = plain_setup({"stages": {"llm": {**llm, **sampling}}}, 2)

    assert [one["role"] for one in setup["prompt"]] == ["system", "user", "assistant"]
    assert (setup["threads"], setup["max_tokens"], setup["repeat_penalty"]) == (2, 9, 1.1)
    assert setup["files"]["vad"] == "/m/silero-vad/silero_vad_16k_op15.onnx"
    assert json.loads(json.dumps(setup)) == setup
