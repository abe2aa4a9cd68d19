# SPDX-License-Identifier: Apache-2.0
"""The demo package and a real `dpfedge serve` process before it."""

from __future__ import annotations

import asyncio
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
import pytest

from dpfedge.pipeline import unit
from dpfedge.runtime import AsyncRuntime

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent / "made"), str(ROOT / "tests")]
PACKAGE = ROOT / "build" / "voice.dpfbin"
RECIPE = ROOT / "examples" / "voice" / "voice.yaml"
KEY = ROOT / "build" / "demo.key"
TRUST = ROOT / "build" / "trust"
os.environ["DPFEDGE_TRUST"] = str(TRUST)  # of this process and of every one that a test starts


class ServerProcess:
    """A server on a free port; `url` is its address."""

    def __init__(self, package: Path, folder: Path, *arguments: str) -> None:
        self.log = folder / "serve.log"
        command = [sys.executable, "-m", "dpfedge", "serve", str(package), "--port", "0", "--json"]
        with self.log.open("wb") as log:
            environ = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
            self.process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=log, env=environ)
        listening = self._event("listening")
        self.url, self.socket = str(listening["http"]), Path(listening["socket"])

    def _event(self, name: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server ended: {self.log.read_text()}"
        event: dict[str, Any] = json.loads(line)
        assert event["event"] == name
        return event

    def wait_ready(self) -> None:
        """Until every stage is warm."""
        self._event("ready")

    def status(self) -> dict[str, Any]:
        """The server's own account."""
        answer: dict[str, Any] = httpx.get(f"{self.url}/v1/status", timeout=30).json()
        return answer

    def pids(self) -> list[int]:
        """Every process of the server."""
        status = self.status()
        stages = [row["pid"] for row in status["stages"].values()]
        return [self.process.pid, status["zygote"]["pid"], *stages]

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """The exit code."""
        code = self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


def run_dpfedge(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    command = [sys.executable, "-m", "dpfedge", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=500)


def eventually(check: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until `check` holds; a watchdog, not a measure."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def voice_package(demo_key: Path) -> Path:
    """build/voice.dpfbin, signed with the demo's key; made when missing."""
    if not PACKAGE.exists():
        compile_demo = ("compile", str(RECIPE), "-o", str(PACKAGE), "--board", "host", "--sign", str(demo_key))
        made = run_dpfedge(*compile_demo)
        if made.returncode:
            pytest.skip(f"no demo package: {made.stderr.strip()[-500:]}")
    return PACKAGE


@pytest.fixture(scope="session")
def demo_key() -> Path:
    """build/demo.key, whose public half is in build/trust; made when missing."""
    if not KEY.exists():
        KEY.parent.mkdir(exist_ok=True)
        made = run_dpfedge("keygen", "--name", "demo", "-o", str(KEY), "--trust", str(TRUST))
        assert made.returncode == 0, made.stderr
    return KEY


@pytest.fixture(scope="session")
def start_server() -> type[ServerProcess]:
    """What starts a server of whatever a test likes."""
    return ServerProcess


@pytest.fixture(scope="session")
def server(voice_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for every test that leaves it running."""
    one = ServerProcess(voice_package, tmp_path_factory.mktemp("serve"))
    one.wait_ready()
    yield one
    assert one.stop() == 0, one.log.read_text()


@pytest.fixture
def own_server(voice_package: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the test's own, which it may end."""
    one = ServerProcess(voice_package, tmp_path)
    one.wait_ready()
    yield one
    if one.process.poll() is None:
        one.stop()


@pytest.fixture
def until() -> Callable[..., None]:
    """`until(check)`."""
    return eventually


@pytest.fixture(scope="session")
def spoken(server: ServerProcess) -> Callable[[str], bytes]:
    """Words → 24 kHz 16-bit PCM, said by the server's own voice."""
    said: dict[str, bytes] = {}

    def say(words: str) -> bytes:
        if words not in said:
            voice = httpx.get(f"{server.url}/v1/models", timeout=30).json()["data"][0]["id"]
            body = {"model": voice, "voice": "default", "input": words, "response_format": "pcm"}
            answer = httpx.post(f"{server.url}/v1/audio/speech", json=body, timeout=60)
            assert answer.status_code == 200, answer.text  # its error would be pushed as sound, and never answered
            said[words] = answer.content
        return said[words]

    return say


@pytest.fixture(scope="module")
def car(voice_package: Path) -> Iterator[Any]:
    """One runtime for all tests of a file, which leave it working; restarts wait for nothing."""
    from made_car import Car

    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setattr(unit, "BACK_OFF_S", (0.0,))
        patch.setattr(unit, "STAGE_RESTARTS_WINDOW_S", 0)
        runtime = runner.run(AsyncRuntime.open(voice_package, board="host"))
        one = Car(runner, runtime)
        one.run(one.learn())
        yield one
        one.run(runtime.close())


@pytest.fixture
def answer(car: Any) -> Iterator[str]:
    """What an undisturbed pipeline answers; every test must leave one that still does, with all places free."""
    car.run(car.steady())
    words: str = car.run(car.ask())
    assert words
    yield words
    assert car.run(car.ask()) == words
    assert car.places() == []
    car.run(car.steady())
