# SPDX-License-Identifier: Apache-2.0
"""The firmware as a process, and its sound converter as a file that a test speaks into and listens to."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpfedge.stage.decoder.resample import Resampler

BRIDGE = Path(__file__).parents[3] / "firmware_bridge"
HZ, BLOCK, PAGE = 16_000, 160, 4096
NONE, END, FLUSH, CLEAR, STOP = range(5)
_MAGIC = 0x3150534446504446
_COUNTERS = struct.Struct("<6Q6IQ")
_NAMES = (
    "ticks", "sent", "unsent", "played", "stopped", "starved", "events", "answers", "stops", "own", "heard", "moves",
    "stop_tick",
)  # fmt: skip
Samples = NDArray[np.int16]


def built(folder: Path) -> Path:
    """The host port, built below `folder`: dpf-firmware and dpf-firmware-rpmsg; skips where nothing can build it."""
    for tool in ("cc", "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"the firmware cannot be built here: no {tool}")
    made = subprocess.run(
        ["make", "-s", "-C", str(BRIDGE), "firmware", f"BUILD={folder}"], capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stderr
    return folder


def at_16k(pcm: bytes, rate: int = 24_000) -> Samples:
    """16-bit samples of another rate as the converter has them."""
    resampler = Resampler(rate)
    samples = np.frombuffer(pcm, np.int16).astype(np.float32) / np.float32(32768)
    whole = np.concatenate([resampler.push(samples), resampler.finish()])
    return np.clip(whole * 32768, -32768, 32767).astype(np.int16)


class Converter:
    """host/dsp.h. Samples are counted from the process's first one."""

    def __init__(self, path: Path, seconds: int) -> None:
        self.path, self.capacity = path, seconds * HZ
        with path.open("w+b") as file:
            file.truncate(PAGE + 4 * self.capacity)
            self._memory = mmap.mmap(file.fileno(), 0)
        struct.pack_into("<2Q", self._memory, 0, _MAGIC, self.capacity)
        whole = np.frombuffer(self._memory, np.int16, 2 * self.capacity, PAGE)
        self._captured, self.played = whole[: self.capacity], whole[self.capacity :]
        hiss = np.random.default_rng(7).normal(0, 4, self.capacity)
        self._captured[:] = hiss.astype(np.int16)

    @property
    def now(self) -> int:
        """The sample that is captured next."""
        (tick,) = struct.unpack_from("<Q", self._memory, 16)
        return int(tick) * BLOCK

    @property
    def counters(self) -> dict[str, int]:
        """Of the last tick."""
        return dict(zip(_NAMES, _COUNTERS.unpack_from(self._memory, 56), strict=True))

    @property
    def timing(self) -> tuple[float, float]:
        """The latest that a tick ended behind its time, and the longest that one took, in ms."""
        late, longest = struct.unpack_from("<2Q", self._memory, 40)
        return late / 1e6, longest / 1e6

    @property
    def chosen(self) -> int:
        """The instance that serves; 0xFFFFFFFF: none."""
        return int(struct.unpack_from("<I", self._memory, 36)[0])

    def say(self, samples: Samples, ahead_s: float = 0.3) -> int:
        """Speak into the microphone from a moment on; the sample behind the last one that is loud."""
        begin = self.now + int(ahead_s * HZ)
        self._captured[begin : begin + len(samples)] += samples
        loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > 300)
        return begin + int(loud[-1]) + 1

    def press(self, command: int) -> None:
        """What a button does."""
        struct.pack_into("<I", self._memory, 32, command)

    def last_sound(self) -> int:
        """The sample behind the last one that was played."""
        return int(np.flatnonzero(self.played)[-1]) + 1


class Firmware:
    """One process."""

    def __init__(self, program: Path, converter: Converter, *words: str) -> None:
        self.converter = converter
        command = [str(program), str(converter.path), *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.until(lambda: converter.now > HZ // 5)

    def until(self, check: Callable[[], Any], seconds: float = 60) -> None:
        """Wait until `check` holds; a watchdog, not a measure."""
        deadline = time.monotonic() + seconds
        while not check():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, f"it never happened: {self.converter.counters}"
            time.sleep(0.01)

    def end(self) -> str:
        """Tell it to end; what it says then."""
        self.converter.press(END)
        out, errors = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, (self.process.returncode, out, errors)
        return out

    def kill(self) -> None:
        """Whatever state it is in."""
        self.process.kill()
        self.process.communicate()
