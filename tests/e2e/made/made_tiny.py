# SPDX-License-Identifier: Apache-2.0
"""A pipeline file with two stages and no model, a process that holds it open under load, and who is left of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

FILE = """\
name: tiny
pipeline:
  stages:
    first: {kind: "tiny_stages:Twice", device: one}
    second: {kind: "tiny_stages:Twice", device: two}
  links:
    - {from: first.out, to: second.in}
"""

# each stage has a device of its own: whoever has its lock has it
STAGES = """\
import fcntl
import os
import sys
from pathlib import Path

import numpy as np

from dpfedge.stage.api import Kind
from dpfedge.stage.each import Each
from dpfedge.stage.ports import Dim, Port, Ports

NUMBERS = Port("f32", (Dim("n", 1, int(os.environ.get("TINY_NUMBERS", "4096"))),), slots=4)

if "dpfedge.pipeline.zygote" in sys.orig_argv:
    exec(os.environ.get("TINY_STAGE", ""))


class Twice(Each):
    ports = Ports({"in": NUMBERS}, {"out": NUMBERS})

    def warm(self):
        self.device = (Path(__file__).parent / f"{self.config['device']}.device").open("w")
        fcntl.flock(self.device, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def each(self, io, message):
        numbers = message.array()
        slot = yield from io.loan("out", numbers.shape, "f32")
        np.multiply(numbers, 2, out=slot.array)
        slot.send(len(numbers), kind=Kind.DATA, turn=message.turn)
"""

# run by every Python that starts with this folder in its path
SITE = """\
import os
import sys

if "dpfedge.pipeline.zygote" in sys.orig_argv:
    exec(os.environ.get("TINY_ZYGOTE", ""))
"""

# prints `open`, or the error that a start ends with
OPENER = """\
import sys

from dpfedge.errors import DpfError
from dpfedge.runtime import Pipeline

try:
    with Pipeline.open(sys.argv[1], board="host"):
        print("open")
except DpfError as error:
    print(f"{type(error).__name__}: {error}")
"""

HOLDER = """\
import json, os, sys, threading, time

import numpy as np

from dpfedge.errors import Busy, StageError, UsageError
from dpfedge.pipeline import unit
from dpfedge.runtime import Pipeline

unit.BACK_OFF_S, unit.STAGE_RESTARTS_WINDOW_S = (float(os.environ.get("TINY_BACK_OFF_S", "0")),), 0
counts = {"whole": 0, "failed": 0}


def ask(pipeline, chance):
    numbers = chance.random(int(chance.integers(1, 4096)), np.float32)
    with pipeline.request() as request:
        outputs = request.outputs()
        for turn in range(1, 5):
            request.send("first.in", numbers, turn=turn)
            output = next(outputs)
            if output.turn != turn or not np.array_equal(output.array, 4 * numbers):
                os._exit(3)
        request.finish()
        if [output.port for output in outputs if output.port]:
            os._exit(4)


def load(pipeline, seed):
    chance = np.random.default_rng(seed)
    while True:
        try:
            ask(pipeline, chance)
            counts["whole"] += 1
        except (Busy, StageError):
            counts["failed"] += 1
            time.sleep(0.005)
        except UsageError:
            return  # it is closed


def told(pipeline):
    status = pipeline.status(memory=False)
    stages = {name: [row["pid"], row["state"], row["restarts"]] for name, row in status["stages"].items()}
    failures = {name: row["failure"] for name, row in status["stages"].items() if row["failure"]}
    kept = {"links": status["links"], "sealed": status["arena"]["sealed"], "failures": failures}
    return {"zygote": status["zygote"]["pid"], "stages": stages, **kept, **counts}


with Pipeline.open(sys.argv[1], board="host") as pipeline:
    for seed in range(int(sys.argv[2])):
        threading.Thread(target=load, args=(pipeline, seed), daemon=True).start()
    for _ in sys.stdin:
        print(json.dumps(told(pipeline)), flush=True)
"""


def write_tiny(folder: Path) -> Path:
    """The pipeline file, its stages beside it."""
    (folder / "tiny_stages.py").write_text(STAGES)
    (folder / "sitecustomize.py").write_text(SITE)
    path = folder / "tiny.yaml"
    path.write_text(FILE)
    return path


class Holder:
    """A process that holds the tiny pipeline open, with `load` threads that ask without a pause and check all."""

    def __init__(self, path: Path, load: int, *, before: str = "", **environ: str) -> None:
        """`before`: Python that its process runs first. What it says on stderr is in `log`."""
        self.log = path.with_suffix(".log")
        command = [sys.executable, "-c", before + "\n" + HOLDER, str(path), str(load)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, **pipes, stderr=log, text=True, env=_environ(path, environ))

    def status(self) -> dict[str, Any]:
        """`zygote` (pid), `stages` (pid, state, restarts), `failures`, `links`, and `whole` and `failed` requests."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the holder ended with {self.process.wait()} (3, 4: wrong numbers): {self.log.read_text()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> int:
        """Let it end in order; its exit code."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        return self.process.wait(60)

    def pids(self) -> list[int]:
        """Every process of the pipeline, the supervising one first."""
        status = self.status()
        return [self.process.pid, status["zygote"], *(pid for pid, _, _ in status["stages"].values())]


def opened(path: Path, before: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """A process that opens the tiny pipeline and closes it again, after it ran `before`."""
    command = [sys.executable, "-c", before + "\n" + OPENER, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=_environ(path, environ))


def _environ(path: Path, more: dict[str, str]) -> dict[str, str]:
    folders = [str(Path(__file__).parent), str(path.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders), **more}


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def arena_of(pid: int) -> str:
    """The line that says which memory a process has mapped as an arena: device and inode."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    (found,) = {" ".join(line.split()[3:5]) for line in lines if "/memfd:dpfedge" in line}
    return found


def users_of(arena: str) -> list[int]:
    """Processes that have this memory mapped."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "maps").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if any(" ".join(line.split()[3:5]) == arena for line in text.splitlines()):
            found.append(int(process.name))
    return found
