# SPDX-License-Identifier: Apache-2.0
"""One package on two backends at once: voice-activity model on the CPU, the other stages on an OpenCL driver (PoCL).

The board is `host-opencl` with one word more, `device: cpu` of the decoder, as an operator would write it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpfedge.backend.registry import Registry
from dpfedge.binding import Bound, bind_here, look
from dpfedge.binding.golden import run_golden
from dpfedge.hardware.board import VARIABLE, board_files
from dpfedge.models import cached
from dpfedge.package import open_package
from dpfedge.package.sidecar import sidecar_of
from dpfedge.pipeline.events import AudioChunk
from dpfedge.runtime import AudioFormat, Runtime

BOARD = "host-opencl"
NEEDED = ("silero-vad", "moonshine-tiny-en", "smollm2-135m-instruct-q4_1", "piper-en-us-joe")
RECIPE = Path(__file__).parents[2] / "examples" / "voice" / "voice.yaml"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(cached, NEEDED)), reason="`dpfedge models pull` has not filled the cache"),
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, demo_key: Path) -> Iterator[Path]:
    """The demo compiled for the board, which is known while the tests run."""
    if "opencl" not in Registry.load().names():
        pytest.skip("the opencl plugin is not installed")
    found = look(BOARD).found
    if all(device.backend != "opencl" for device in found.devices):
        pytest.skip(f"no OpenCL driver for this CPU: {found.broken.get('opencl', 'none is installed')}")
    folder = tmp_path_factory.mktemp("mixed")
    text = board_files()[BOARD].read_text()
    placed = text.replace("decoder: {threads: 1}", "decoder: {threads: 1, device: cpu}")
    assert placed != text
    (folder / f"{BOARD}.yaml").write_text(placed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(folder))
        compiled = folder / "voice.dpfbin"
        _dpfedge("compile", str(RECIPE), "-o", str(compiled), "--board", BOARD, "--sign", str(demo_key))
        yield compiled


@pytest.fixture
def bound(package: Path) -> Iterator[Bound]:
    """The package on this machine."""
    one = bind_here(open_package(package), BOARD)
    yield one
    one.close()


def _dpfedge(*arguments: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "dpfedge", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _placed(status: Any) -> dict[str, tuple[str, str]]:
    """Stage → its backend and device."""
    rows = {name: row["placed"] for name, row in status["stages"].items()}
    return {name: (place["backend"], place["device"]) for name, place in rows.items()}


def test_bind__says_for_each_model_where_and_why(package: Path) -> None:
    """As data, and as lines with the decision that put the model there."""
    told = json.loads(_dpfedge("bind", str(package), "--board", BOARD, "--json"))
    lines = _dpfedge("bind", str(package), "--board", BOARD, "--explain").splitlines()

    assert {target["backend"]["name"]: set(target["models"]) for target in told["targets"]} == {
        "opencl": {"speech", "llm", "voice"}, "cpu": {"vad"},
    }  # fmt: skip
    assert (told["degraded"], told["refusals"]) == (None, [])
    why = "board host-opencl: the board file places decoder there"
    assert f"decided  vad: device=cpu: {why}" in lines


def test_golden__every_model_where_it_is_bound(bound: Bound) -> None:
    """Both targets' graphs answer as the reference did."""
    results = run_golden(bound)

    assert {result.model for result in results} == {"vad", "speech", "llm", "voice"}
    assert [result for result in results if not result.passed] == []


def test_turn__through_both_backends(package: Path) -> None:
    """A spoken question is answered; between stages on different devices no tensor is copied."""
    with Runtime.open(package, board=BOARD) as runtime:
        form = AudioFormat("pcm_s16le", int(runtime.facts["voice"]["rate"]))
        said = runtime.speak("What is the capital of France?")
        pcm = b"".join(event.samples.tobytes() for event in said if isinstance(event, AudioChunk))
        answer = runtime.ask(pcm + bytes(len(pcm) // 4 * 2), format=form)
        status = runtime.status()

    assert answer.question == "What is the capital of France?"
    assert "Paris" in answer.text
    assert len(answer.samples) > form.rate // 4
    assert _placed(status) == {
        "decoder": ("cpu", "cpu:0"), "encoder": ("opencl", "opencl:0"), "llm": ("opencl", "opencl:0"),
        "voice": ("opencl", "opencl:0"),
    }  # fmt: skip
    assert status["links"]["decoder.encoder"]["sent"] > 0
    assert {name: link["copies"] for name, link in status["links"].items()} == dict.fromkeys(status["links"], 0)


def test_seal__one_file_for_both(package: Path, demo_key: Path) -> None:
    """What each backend built lies in one sidecar, bound to both devices; it is used, and counts for both."""
    told = json.loads(_dpfedge("seal", str(package), "--board", BOARD, "--key", str(demo_key), "--json"))
    built = {row["model"] for row in told["built"]}
    bound = bind_here(open_package(package), BOARD)
    try:
        assert bound.stale == ()
        assert bound.sidecar is not None
        assert built >= {"speech", "llm", "voice"}
        record = bound.sidecar.record
        assert (record.backend, record.device["target2/backend"]) == ("opencl", "cpu")
        assert any(name.startswith("target2/") for name in record.libraries)
    finally:
        bound.close()
    with Runtime.open(package, board=BOARD) as runtime:
        sealed = runtime.status()["seal"]
        words = "".join(getattr(event, "text", "") for event in runtime.chat([{"role": "user", "content": "Hello"}]))
    assert (sealed["path"], sealed["stale"]) == (str(sidecar_of(package)), [])
    assert words
    sidecar_of(package).unlink()
