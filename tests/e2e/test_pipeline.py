# SPDX-License-Identifier: Apache-2.0
"""Drawn graphs in real processes: the example, deaths, a stage that is never ready, and two stages in one process."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfedge import AsyncPipeline, Pipeline
from dpfedge.errors import DeadlineExceeded, StageDied, StageError

EXAMPLE = Path(__file__).parents[2] / "examples" / "two-stages"
CODE = """
import time
import numpy as np
from dpfedge.stage import Dim, Each, Kind, Port, Ports, Sets

NUMBERS = Port("f32", (Dim("n", 1, 1000),), slots=16)

class Slow(Each):
    ports = Ports({"numbers": NUMBERS}, {"numbers": NUMBERS})
    def each(self, io, message):
        time.sleep(self.config.get("seconds", 0))
        slot = yield from io.loan("numbers", message.array().shape, "f32")
        np.add(message.array(), 1, out=slot.array)
        slot.send(len(slot.array), kind=Kind.DATA, turn=message.turn, captured_ns=message.captured_ns)

class Pair(Sets):
    ports = Ports({"frames": NUMBERS, "speech": NUMBERS}, {"pairs": NUMBERS})
    def together(self, io, found):
        slot = yield from io.loan("pairs", (2,), "f32")
        slot.array[:] = [found["frames"].array()[0], found["speech"].array()[0]]
        slot.send(2, kind=Kind.DATA, turn=0, captured_ns=found["speech"].captured_ns)

class Never(Slow):
    def warm(self):
        time.sleep(3600)
"""
CHAIN = """name: chain
pipeline:
  stages:
    a: {kind: "code:Slow"}
    b: {kind: "code:Slow", seconds: SECONDS}
    c: {kind: "code:Slow"}
  links:
    - {from: a.numbers, to: b.numbers}
    - {from: b.numbers, to: c.numbers}
"""


@pytest.fixture
def chain(tmp_path: Path) -> Callable[..., Path]:
    """A pipeline file of three stages; `seconds` is what the second takes for a message."""

    def make(seconds: float = 0, **changes: str) -> Path:
        (tmp_path / "code.py").write_text(CODE)
        text = CHAIN.replace("SECONDS", str(seconds))
        for old, new in changes.items():
            text = text.replace(old, new)
        (tmp_path / "chain.yaml").write_text(text)
        return tmp_path / "chain.yaml"

    return make


def _children() -> set[str]:
    """Of this thread; a server of another test may be one of them."""
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


def _sums(pipeline: Pipeline, count: int = 3) -> list[float]:
    with pipeline.request() as request:
        for number in range(count):
            request.send("a.numbers", np.full(4, number, np.float32))
        request.finish()
        return [float(output.array[0]) for output in request.outputs() if output.port == "numbers"]


def test_example__says_what_it_hears(tmp_path: Path) -> None:
    """Copied elsewhere, as a newcomer would; 40 lines without the blank ones."""
    shutil.copytree(EXAMPLE, tmp_path / "mine")
    lines = [line for path in (tmp_path / "mine").iterdir() for line in path.read_text().splitlines() if line.strip()]
    done = subprocess.run([sys.executable, "mine/main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert (done.stdout, done.returncode) == ("quiet loud\n", 0), done.stderr
    assert len([line for line in lines if "SPDX" not in line]) <= 40


def test_pipeline__three_processes_and_no_copy(chain: Callable[..., Path]) -> None:
    """Every message once, in order."""
    with Pipeline.open(chain()) as pipeline:
        assert _sums(pipeline, 20) == [number + 3 for number in range(20)]
        status = pipeline.status()
        assert len({stage["pid"] for stage in status["stages"].values()}) == 3
        assert sum(link["copies"] for link in status["links"].values()) == 0
        assert status["pipeline"] == "chain"


def test_killed_stage__comes_back_and_the_request_has_its_error(chain: Callable[..., Path]) -> None:
    """The caller is told which stage within a second; the next request works."""
    with Pipeline.open(chain(0.2)) as pipeline:
        pid = pipeline.status()["stages"]["b"]["pid"]
        with pipeline.request() as request:
            request.send("a.numbers", np.zeros(4, np.float32))
            threading.Timer(0.1, os.kill, (pid, signal.SIGKILL)).start()
            with pytest.raises(StageDied) as caught:
                list(request.outputs())
        assert caught.value.stage == "b"
        assert _sums(pipeline, 1) == [3.0]
        assert pipeline.status()["stages"]["b"]["pid"] != pid


def test_killed_stage__is_asked_again_when_nothing_was_given(chain: Callable[..., Path]) -> None:
    """A request that had only begun is begun once more; its caller sees nothing of the death."""
    with Pipeline.open(chain()) as pipeline, pipeline.request() as request:
        pid = pipeline.status()["stages"]["b"]["pid"]
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 30
        while pipeline.status(memory=False)["stages"]["b"]["pid"] in (0, pid) and time.monotonic() < end:
            time.sleep(0.01)
        request.send("a.numbers", np.zeros(4, np.float32))
        request.finish()
        assert [float(output.array[0]) for output in request.outputs() if output.port == "numbers"] == [3.0]


def test_stage__that_is_never_ready(chain: Callable[..., Path]) -> None:
    """Its budget is the bound; the error names it and nothing is left running."""
    path = chain(**{"links:": "budgets: {start: 2s}\n  links:", 'b: {kind: "code:Slow"': 'b: {kind: "code:Never"'})

    with pytest.raises(StageError) as caught:
        Pipeline.open(path)
    assert caught.value.stage == "b"


def test_inputs__belong_together_in_time(tmp_path: Path) -> None:
    """Speech with the frame nearest to it, however late either comes; what has no partner is counted."""
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "pair.yaml").write_text(
        """name: pair
pipeline:
  stages:
    camera: {kind: "code:Slow"}
    ears: {kind: "code:Slow", seconds: 0.02}
    pair: {kind: "code:Pair", sync: {lead: speech, policy: nearest, tolerance: 20ms, depth: 12}}
  links:
    - {from: camera.numbers, to: pair.frames}
    - {from: ears.numbers, to: pair.speech}
"""
    )
    with Pipeline.open(tmp_path / "pair.yaml") as pipeline, pipeline.request() as request:
        for at_ms in range(33, 333, 33):
            request.send("camera.numbers", np.full(1, at_ms, np.float32), captured_ns=at_ms * 1_000_000)
        for at_ms in (50, 110, 400):
            request.send("ears.numbers", np.full(1, at_ms, np.float32), captured_ns=at_ms * 1_000_000)
        request.finish()
        pairs = [output.array.tolist() for output in request.outputs() if output.port == "pairs"]

    assert pairs == [[67.0, 51.0], [100.0, 111.0]]
    assert request.report["pair"]["dropped"]["speech"] == 1


def test_recording__is_done_again_bit_for_bit(tmp_path: Path) -> None:
    """The same pipeline gives the same; another threshold is found."""
    np.full(1000, 0.5, np.float32).tofile(tmp_path / "loud.raw")
    shutil.copytree(EXAMPLE, tmp_path / "mine")
    dpfedge = [sys.executable, "-m", "dpfedge"]
    pipeline, flight = str(tmp_path / "mine" / "pipeline.yaml"), str(tmp_path / "flight")
    words = ["--send", f"loudness.samples=@{tmp_path / 'loud.raw'}", "--flight-recorder", flight, "--flight-audio"]
    subprocess.run([*dpfedge, "run", pipeline, *words], check=True, timeout=120)
    same = subprocess.run([*dpfedge, "replay", flight, pipeline], capture_output=True, text=True, timeout=120)
    assert (same.returncode, "1 turns compared, the same" in same.stdout) == (0, True), same.stderr

    path = Path(pipeline)
    path.write_text(path.read_text().replace("above: 0.1", "above: 0.9"))
    other = subprocess.run([*dpfedge, "replay", flight, pipeline], capture_output=True, text=True, timeout=120)
    assert (other.returncode, "alarm.word was 1 messages, is 1: message 0 is another" in other.stdout) == (1, True)


def test_stage__that_hangs_in_a_step(chain: Callable[..., Path]) -> None:
    """It is ended and started again; its caller hears which stage, and the next request works."""
    path = chain(600, **{"links:": "budgets: {hang: 300ms}\n  links:"})
    with Pipeline.open(path) as pipeline:
        pid = pipeline.status()["stages"]["b"]["pid"]
        with pipeline.request() as request:
            request.send("a.numbers", np.zeros(4, np.float32))
            with pytest.raises(StageDied, match="hung") as caught:
                list(request.outputs())
        assert caught.value.stage == "b"
        with pipeline.request() as request:
            request.finish()
            list(request.outputs())
        assert pipeline.status()["stages"]["b"]["pid"] != pid


def test_requests__of_many_threads(chain: Callable[..., Path]) -> None:
    """Each gets its own answers."""
    with Pipeline.open(chain()) as pipeline:
        got: dict[int, list[float]] = {}

        def ask(number: int) -> None:
            with pipeline.request() as request:
                for part in range(10):
                    request.send("a.numbers", np.full(4, 100 * number + part, np.float32))
                request.finish()
                outputs: Any = request.outputs()
                got[number] = [float(output.array[0]) for output in outputs if output.port == "numbers"]

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got == {number: [100 * number + part + 3 for part in range(10)] for number in range(8)}


def test_run__a_pipeline_file_from_the_command_line(tmp_path: Path) -> None:
    """Inputs in order, outputs as lines; `inspect` shows the graph without starting it."""
    np.full(1000, 0.5, np.float32).tofile(tmp_path / "loud.raw")
    command = [sys.executable, "-m", "dpfedge", "run", str(EXAMPLE / "pipeline.yaml")]
    done = subprocess.run(
        [*command, "--send", f"loudness.samples=@{tmp_path / 'loud.raw'}", "--json"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"stage": "alarm", "port": "word", "kind": "data", "turn": 0, "data": "loud"} in rows, done.stderr

    refused = subprocess.run([*command, "--send", "loudness.sample=x"], capture_output=True, text=True, timeout=120)
    assert (refused.returncode, "no such input of the pipeline" in refused.stderr) == (2, True)
    shown = subprocess.run(
        [*command[:3], "inspect", command[-1]], capture_output=True, text=True, timeout=120, check=True
    )
    assert "loudness.level → alarm.level" in shown.stdout


def test_request__dropped_or_outliving_its_pipeline(chain: Callable[..., Path]) -> None:
    """One that nobody has any more gives its place back; ending one of a closed pipeline is no error."""
    with Pipeline.open(chain()) as pipeline:
        for _ in range(70):
            pipeline.request()
        failed = pipeline.request(deadline_s=1e-9)
        with pytest.raises(DeadlineExceeded):
            list(failed.outputs())
        with pytest.raises(DeadlineExceeded):
            failed.finish()
        gone = weakref.ref(failed)
        del failed
        gc.collect()
        assert gone() is None
        with pipeline.request():
            pipeline.close()


def test_newest__loses_no_end_of_many_requests(chain: Callable[..., Path]) -> None:
    """They share a link that drops; every one ends."""
    old, new = "{from: a.numbers, to: b.numbers}", "{from: a.numbers, to: b.numbers, policy: newest, slots: 2}"
    with Pipeline.open(chain(0.01, **{old: new})) as pipeline:
        ended: list[bool] = []

        def ask() -> None:
            with pipeline.request(deadline_s=60) as request:
                for _ in range(5):
                    request.send("a.numbers", np.ones(4, np.float32))
                request.finish()
                ended.append("c" in {output.stage for output in request.outputs()})

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ended == [True] * 12
        stats = pipeline.status(memory=False)["links"]
        assert stats["a.b"]["depth"] + stats["a.b"]["in_flight"] == 0


def test_open__that_was_cancelled_leaves_no_process(chain: Callable[..., Path]) -> None:
    """Whatever it had started by then."""
    path, before, children = chain(), set(os.listdir("/proc/self/fd")), _children()

    async def test() -> None:
        for delay_s in (0.0, 0.001, 0.02):
            opening = asyncio.create_task(AsyncPipeline.open(path))
            await asyncio.sleep(delay_s)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening

    asyncio.run(test())
    assert set(os.listdir("/proc/self/fd")) <= before
    assert _children() <= children
