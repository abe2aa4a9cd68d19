# SPDX-License-Identifier: Apache-2.0
"""Frames into a slot, ours beside PyAV's own way and a copy; then the camera pipeline, stage by stage.

Usage: python tests/bench/bench_camera.py frames [rounds] | pipeline PACKAGE [frames] [side]
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
from peers import header, rounds, show

from dpfedge.runtime.pipeline import Pipeline
from dpfedge.stage.camera.convert import Converter

SIZES = ((640, 480), (1280, 720), (1920, 1080), (3840, 2160))
EXAMPLE = Path(__file__).parents[2] / "examples" / "camera-ocr" / "make_video.py"
EYES = """
name: eyes
package: {package}
pipeline:
  stages:
    camera: {{width: {side}, height: {side}, multiple: 32}}
    text-detect: {{model: detect}}
    text-read: {{model: read}}
  links:
    - {{from: camera.frames, to: text-detect.frames, slots: 4}}
    - {{from: text-detect.lines, to: text-read.lines, slots: 4}}
"""


def picture(width: int, height: int) -> Any:
    """A decoded frame as a camera or a file gives it."""
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    return av.VideoFrame.from_ndarray(noise, format="rgb24").reformat(format="yuv420p")


def ways(width: int, height: int) -> dict[str, Callable[[], float]]:
    """Seconds of one frame into a slot, by each way."""
    frame, slot, converter = picture(width, height), np.empty((height, width, 3), np.uint8), Converter()
    reformatter = av.video.reformatter.VideoReformatter()

    def ours() -> None:
        converter.write(frame, slot)

    def theirs() -> None:
        np.copyto(slot, reformatter.reformat(frame, format="rgb24", threads=1).to_ndarray())

    def timed(run: Callable[[], None]) -> Callable[[], float]:
        def once() -> float:
            started = time.perf_counter()
            run()
            return time.perf_counter() - started

        return once

    return {"straight": timed(ours), "PyAV and a copy": timed(theirs)}


def frames(count: int) -> None:
    """One table per size."""
    for width, height in SIZES:
        show(f"one frame, {width} × {height}", rounds(count, ways(width, height)), "straight", "µs", 1e6)


def pipeline(package: Path, count: int, side: int) -> None:
    """Frames per second, and what each stage needs for one."""
    spec = importlib.util.spec_from_file_location("make_video", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory() as folder:
        video, path = Path(folder, "sign.mp4"), Path(folder, "eyes.yaml")
        module.write(str(video), ["The train to Berlin leaves at 10:45", "from platform 7", "Gate B12"])
        path.write_text(EYES.format(package=package.resolve(), side=side))
        with Pipeline.open(path, allow_unsigned=True) as opened:
            for number in (2, count):  # the first warms caches
                options = {"camera": {"source": str(video), "loop": True, "count": number}}
                started = time.perf_counter()
                with opened.request(options) as request:
                    for _ in request.outputs():
                        pass
                    report = request.report
                seconds = time.perf_counter() - started
            copies = sum(link["copies"] for link in opened.status()["links"].values())
    camera, detect, read = (report[name] for name in ("camera", "text-detect", "text-read"))
    print(f"{camera['width']} × {camera['height']}, {count} frames, {read['lines'] // count} lines each")
    print(f"frames per second  {count / seconds:8.2f}   copies {copies}")
    for name, total in (
        ("decode", camera["decode_ms"]), ("convert", camera["convert_ms"]), ("detect", detect["detect_ms"]),
        ("cut", detect["cut_ms"]), ("read", read["read_ms"]),
    ):  # fmt: skip
        print(f"{name:8s} ms per frame {total / count:8.2f}")


if __name__ == "__main__":
    header()
    if sys.argv[1] == "frames":
        frames(int(sys.argv[2]) if len(sys.argv) > 2 else 200)
    else:
        arguments = [int(text) for text in sys.argv[3:]]
        pipeline(Path(sys.argv[2]), *(arguments + [20, 640][len(arguments) :]))
