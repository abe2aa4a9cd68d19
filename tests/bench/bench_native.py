# SPDX-License-Identifier: Apache-2.0
"""The native face beside the WebSocket face: how long a chunk takes, what it costs the server, when an answer is heard.

Both faces serve the same runtime in one process, both clients are processes of their own and connect to Unix sockets.
Chunks carry the time they were sent at in their first samples: one that echoes tells both directions. The second table
is a real server and a spoken question at the pace of a microphone: from its last sample to the first of the answer.
Usage: python tests/bench/bench_native.py build/voice.dpfbin [rounds] [chunks]
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from peers import header

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e/made"), str(ROOT / "tests/e2e")]

from conftest import ServerProcess  # noqa: E402
from made_client import Client, installed  # noqa: E402
from websockets.sync.client import unix_connect  # noqa: E402

from dpfedge.pipeline.events import AudioChunk, Transcript  # noqa: E402
from dpfedge.serve.app import create_app  # noqa: E402
from dpfedge.serve.native.face import NativeFace  # noqa: E402
from dpfedge.serve.provider import Provider  # noqa: E402
from dpfedge.serve.server import Server  # noqa: E402
from dpfedge.serve.sockets import listen_unix, native_path  # noqa: E402

HZ, CHUNK, GAP_S = 24_000, 960, 0.005  # 20 ms of sound, four times as fast as it is spoken
QUESTION = "What is the capital of France?"
FACES = ("native", "websocket")


def stamp(nbytes: int = CHUNK) -> bytes:
    """Sound that says when it was made."""
    return time.monotonic_ns().to_bytes(8, "little") + bytes(nbytes - 8)


def age_us(pcm: bytes | memoryview) -> float:
    """How old such sound is."""
    return (time.monotonic_ns() - int.from_bytes(bytes(pcm[:8]), "little")) / 1e3


# --- clients: each a process of its own ---


class Native:
    """Samples out and in over libdpfedge."""

    def __init__(self, prefix: str, path: str) -> None:
        self._client = Client(Path(prefix), native_path(Path(path)), input_hz=HZ)

    def push(self, pcm: bytes) -> None:
        self._client.push(pcm)

    def sound(self) -> bytes:
        return self._client.sound().pcm


class WebSocket:
    """The same over the Realtime protocol."""

    def __init__(self, prefix: str, path: str) -> None:
        opened = unix_connect(path, "ws://localhost/v1/realtime", compression=None, max_size=None)
        self._socket = opened.__enter__()  # the process ends with it

    def push(self, pcm: bytes) -> None:
        audio = base64.b64encode(pcm).decode()
        self._socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))

    def sound(self) -> bytes:
        while (event := json.loads(self._socket.recv()))["type"] != "response.output_audio.delta":
            continue
        return base64.b64decode(event["delta"])


def echo(face: Any, chunks: int) -> list[float]:
    """Ages of the echoes."""
    ages: list[float] = []

    def listen() -> None:
        while len(ages) < chunks:
            ages.append(age_us(face.sound()))

    listening = threading.Thread(target=listen)
    listening.start()
    for _ in range(chunks):
        face.push(stamp())
        time.sleep(GAP_S)
    listening.join()
    return ages


def ask(face: Any, pcm: bytes) -> float:
    """Milliseconds from the last sample of a question to the first of its answer."""
    heard: list[int] = []

    def listen() -> None:
        face.sound()
        heard.append(time.monotonic_ns())

    listening = threading.Thread(target=listen)
    listening.start()
    next_ns, asked = time.monotonic_ns(), 0
    while not heard:
        piece, pcm = pcm[:CHUNK], pcm[CHUNK:]
        face.push(piece.ljust(CHUNK, b"\0"))
        asked = time.monotonic_ns() if piece else asked
        next_ns += 20_000_000
        time.sleep(max(0, next_ns - time.monotonic_ns()) / 1e9)
    listening.join()
    return (heard[0] - asked) / 1e6


def client(kind: str, what: str, prefix: str, path: str, argument: str) -> None:
    """One client process: its result on stdout."""
    face = (Native if kind == "native" else WebSocket)(prefix, path)
    result = echo(face, int(argument)) if what == "echo" else ask(face, Path(argument).read_bytes())
    print(json.dumps(result), flush=True)
    os._exit(0)  # as a client that is killed


def command(kind: str, *arguments: str) -> list[str]:
    """The command of such a process."""
    return [sys.executable, __file__, "--client", kind, *arguments]


# --- a runtime that echoes ---


class EchoSession:
    """Says every chunk's time back."""

    history: tuple[()] = ()

    def __init__(self, ages: list[float]) -> None:
        self._ages = ages
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._events.put_nowait(Transcript(1024, 1, "echo", 0, 1))

    async def push(self, pcm: bytes | memoryview) -> None:
        self._ages.append(age_us(pcm))
        self._events.put_nowait(None)

    async def interrupt(self, heard: str | None = None) -> None:
        return None

    async def events(self) -> Any:
        yield await self._events.get()
        while True:
            await self._events.get()
            yield AudioChunk(1024, 1, np.frombuffer(stamp(), np.int16), HZ)


class EchoRuntime:
    """One voice, no models."""

    name, ready = "echo", True

    def __init__(self) -> None:
        self.ages: list[float] = []
        self.facts = {"decoder": {}, "encoder": {"name": "e"}, "llm": {"name": "l"}, "voice": {"name": "v", "rate": HZ}}

    async def wait_ready(self) -> None:
        return None

    async def converse(self, *_: Any, **__: Any) -> EchoSession:
        return EchoSession(self.ages)

    async def end(self, session: EchoSession) -> None:
        return None

    async def close(self) -> None:
        return None

    def status(self, *, memory: bool = True) -> dict[str, Any]:
        return {"stages": {}, "links": {}}


async def transport(prefix: Path, folder: Path, rounds: int, chunks: int) -> None:
    """The first table."""
    runtime = EchoRuntime()

    async def launch() -> Any:
        return runtime

    provider = Provider("echo", launch)
    await provider.start()
    app, path = create_app(provider), folder / "echo.sock"
    server = Server(app, provider)
    found: dict[str, dict[str, list[float]]] = {face: {"up": [], "down": [], "cpu": []} for face in FACES}
    with listen_unix(path) as http, listen_unix(native_path(path), kind=socket.SOCK_SEQPACKET) as sock:
        face = NativeFace(provider, app.state.metrics, sock)
        face.start()
        serving = asyncio.ensure_future(server.serve([http]))
        for _ in range(rounds):
            for kind in FACES:
                runtime.ages.clear()
                before = time.process_time_ns()
                words = command(kind, "echo", str(prefix), str(path), str(chunks))
                process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
                out, _ = await process.communicate()
                found[kind]["cpu"].append((time.process_time_ns() - before) / 1e3 / chunks)
                found[kind]["up"] += runtime.ages
                found[kind]["down"] += json.loads(out)
        server.should_exit = True
        await serving
        await face.close()
    print(f"\n{chunks} chunks of 20 ms, {rounds} rounds in turn; µs, server's processor time per chunk and echo")
    for kind, values in found.items():
        up, down = (np.percentile(values[way], (50, 99)) for way in ("up", "down"))
        cpu = np.median(values["cpu"])
        print(
            f"  {kind:10s} up {up[0]:7.0f} p99 {up[1]:7.0f}   down {down[0]:7.0f} p99 {down[1]:7.0f}   cpu {cpu:6.0f}"
        )


# --- a real server ---


@contextmanager
def served(package: Path, folder: Path) -> Iterator[ServerProcess]:
    """`dpfedge serve`, warm."""
    server = ServerProcess(package, folder)
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


def question(server: ServerProcess, folder: Path) -> Path:
    """The package's own voice asks."""
    voice = httpx.get(f"{server.url}/v1/models", timeout=30).json()["data"][0]["id"]
    body = {"model": voice, "voice": "default", "input": QUESTION, "response_format": "pcm"}
    path = folder / "question.pcm"
    path.write_bytes(httpx.post(f"{server.url}/v1/audio/speech", json=body, timeout=60).content)
    return path


def free_ms(kind: str, server: ServerProcess, *arguments: str) -> float:
    """From kill -9 of a client that is being answered until no stage has its request, looked at every millisecond."""
    with subprocess.Popen(command(kind, *arguments), stdout=subprocess.PIPE) as process:
        while server.status()["requests"] == 0:
            time.sleep(0.05)
        time.sleep(2)
        process.kill()
        begun = time.monotonic_ns()
        with httpx.Client() as http:
            while http.get(f"{server.url}/v1/status?memory=no", timeout=30).json()["requests"]:
                time.sleep(0.001)
    return (time.monotonic_ns() - begun) / 1e6


def turns(package: Path, prefix: Path, folder: Path, rounds: int) -> None:
    """The second table."""
    found: dict[str, list[float]] = {face: [] for face in FACES}
    freed: dict[str, list[float]] = {face: [] for face in FACES}
    with served(package, folder) as server:
        common = (str(prefix), str(server.socket), str(question(server, folder)))
        for index in range(rounds + 1):
            for kind in FACES if index % 2 else FACES[::-1]:
                out = subprocess.run(command(kind, "ask", *common), stdout=subprocess.PIPE, check=True).stdout
                found[kind].append(json.loads(out))
                freed[kind].append(free_ms(kind, server, "ask", *common))
    print(
        f"\nspoken question, {rounds} rounds in turn after one; ms from its last sample; until a killed client is freed"
    )
    for kind, values in found.items():
        middle, gone = np.median(values[1:]), np.median(freed[kind][1:])
        least, most = min(values[1:]), max(values[1:])
        print(f"  {kind:10s} first sound {middle:7.1f} ({least:.1f} to {most:.1f})   freed {gone:6.1f}")


def main(package: str, rounds: int = 4, chunks: int = 500) -> None:
    """Both tables."""
    header()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prefix = installed(folder)
        asyncio.run(transport(prefix, folder, rounds, chunks))
        turns(Path(package), prefix, folder, rounds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        client(*sys.argv[2:])
    else:
        main(sys.argv[1], *map(int, sys.argv[2:]))
