# SPDX-License-Identifier: Apache-2.0
"""The demo pipeline through OpenCL: compiled, bound with each boundary told, right, sealed, and heard to answer."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dpfedge_opencl import OpenClBackend

from dpfedge.errors import Unavailable
from dpfedge.models import cached, pull

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples" / "voice" / "voice.yaml"
PACKAGE = ROOT / "build" / "voice-opencl.dpfbin"
BOARD = ("--board", "host-opencl")
WORDS = "ever tried ever failed no matter try again fail again"


def run(*arguments: str, **environment: str) -> str:
    """What a command prints; it must end well."""
    command = [sys.executable, "-m", "dpfedge", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=900, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def package(demo_key: Path) -> Path:
    """build/voice-opencl.dpfbin, signed with the demo's key; made when missing, or older than the plugin."""
    try:
        OpenClBackend().devices(Path("/"))
    except Unavailable as error:
        pytest.skip(f"unavailable: {error}")
    sources = (path for ending in ("py", "cl") for path in (ROOT / "plugins" / "dpfedge-opencl").rglob(f"*.{ending}"))
    if not PACKAGE.exists() or PACKAGE.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        run("compile", str(RECIPE), "-o", str(PACKAGE), *BOARD, "--sign", str(demo_key))
    return PACKAGE


def test_bind__explains_each_boundary(package: Path) -> None:
    """Every model runs on the OpenCL device; what goes to the CPU is named with the operators and the reason."""
    text = run("bind", str(package), *BOARD, "--explain")
    assert re.search(r"opencl:\d.*(llm|speech)", text)
    boundaries = re.findall(r"voice\.encode: cpu segment \d+: .*", text)
    assert boundaries
    assert any("NonZero" in line and "no kernel" in line for line in boundaries)
    assert not re.findall(r"llm\.llm: cpu segment", text)


def test_bind__plain_host_never_asks_for_opencl(package: Path) -> None:
    """On board `host` the CPU's target is taken; neither pyopencl nor the child that asks it is started."""
    command = [sys.executable, "-X", "importtime", "-m", "dpfedge", "bind", str(package), "--board", "host"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=True)
    assert "cpu:0" in done.stdout
    assert "pyopencl" not in done.stderr
    assert "dpfedge_opencl.devices" not in done.stderr


def test_golden__agrees_through_opencl(package: Path) -> None:
    """Every graph's recorded answers, within what its arithmetic allows."""
    (report,) = json.loads(run("verify", str(package), "--run", *BOARD, "--json"))["packages"]
    results = report["golden"]
    assert len(results) >= 15
    assert [one for one in results if not one["passed"]] == []


@pytest.mark.skipif(
    not cached("moonshine-speech-samples"), reason="`dpfedge models pull moonshine-speech-samples` has not been run"
)
def test_voice__hears_and_answers_through_opencl(package: Path, tmp_path: Path) -> None:
    """A spoken question in, its words and a spoken answer out, with a seal beside the package."""
    own = tmp_path / package.name
    shutil.copy(package, own)
    run("seal", str(own), *BOARD, "--key", str(ROOT / "build" / "demo.key"))
    audio = pull("moonshine-speech-samples").path("beckett.wav")
    out = tmp_path / "answer.wav"
    found: dict[str, Any] = json.loads(run("run", str(own), *BOARD, "--audio", str(audio), "--out", str(out), "--json"))
    heard = re.sub(r"[^a-z ]", " ", found["question"].lower()).split()
    assert heard[: len(WORDS.split())] == WORDS.split()
    assert found["text"].strip()
    assert found["audio_s"] > 0.5
    assert out.stat().st_size > 10_000
