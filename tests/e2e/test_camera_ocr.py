# SPDX-License-Identifier: Apache-2.0
"""The camera pipeline with its real models: what is written in a video is read, answered, and never copied."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from dpfedge.backend.api import Budget
from dpfedge.binding import bind_here
from dpfedge.errors import InputError
from dpfedge.models import pull
from dpfedge.package import open_package
from dpfedge.runtime.pipeline import Pipeline
from dpfedge.stage.api import Kind

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "camera-ocr"
LINES = ("The train to Berlin leaves at 10:45", "from platform 7", "Gate B12")
QUESTION = "From which platform does the train leave?"
WATCHDOG_S = 300

EYES = """
name: eyes
package: {package}
pipeline:
  stages:
    camera: {{width: 320, height: 256, multiple: 32, {camera}}}
    text-detect: {{model: detect}}
    text-read: {{model: read, send: change}}
  links:
    - {{from: camera.frames, to: text-detect.frames, slots: 2}}
    - {{from: text-detect.lines, to: text-read.lines, slots: 2}}
"""


@pytest.fixture(scope="session")
def ocr_package(demo_key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's package, compiled once."""
    path = tmp_path_factory.mktemp("ocr") / "camera-ocr.dpfbin"
    command = [sys.executable, "-m", "dpfedge", "compile", str(EXAMPLE / "camera-ocr.yaml"), "-o", str(path)]
    options = ["--board", "host", "--sign", str(demo_key)]
    made = subprocess.run([*command, *options], capture_output=True, text=True, timeout=WATCHDOG_S, cwd=ROOT)
    if made.returncode:
        pytest.skip(f"no package: {made.stderr.strip()[-500:]}")
    return path


@pytest.fixture(scope="session")
def write_video() -> Callable[..., None]:
    """The example's own video maker."""
    spec = importlib.util.spec_from_file_location("make_video", EXAMPLE / "make_video.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: Callable[..., None] = module.write
    return made


@pytest.fixture(scope="module")
def sign(write_video: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds of a sign."""
    path = tmp_path_factory.mktemp("video") / "sign.mp4"
    write_video(str(path), LINES)
    return path


@pytest.fixture
def eyes(ocr_package: Path, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """`eyes("rate: 1")`: a running pipeline from the camera to words, with such settings of the camera."""
    opened: list[Pipeline] = []

    def start(camera: str) -> Pipeline:
        path = tmp_path / "eyes.yaml"
        path.write_text(EYES.format(package=ocr_package, camera=camera))
        opened.append(Pipeline.open(path, board="host"))
        return opened[-1]

    yield start
    for pipeline in opened:
        pipeline.close()


def copies(status: Any) -> dict[str, int]:
    """Link → payloads that were copied into it."""
    return {name: link["copies"] for name, link in status["links"].items()}


def test_text__is_read_exactly_and_never_copied(eyes: Callable[..., Any], sign: Path) -> None:
    """Every frame says every line, letter by letter, in reading order; time stamps are the video's."""
    pipeline = eyes("rate: 2")
    with pipeline.request({"camera": {"source": str(sign)}}) as request:
        found = [(output.map, output.captured_ns) for output in request.outputs() if output.port == "found"]
        report = request.report

    assert [data["text"] for data, _ in found] == ["\n".join(LINES)] * 4
    assert all(line["confidence"] > 0.9 for data, _ in found for line in data["lines"])
    assert [round((at - found[0][1]) / 1e8) for _, at in found] == [0, 5, 10, 15]
    left, top = np.array(found[0][0]["lines"][0]["box"]).reshape(4, 2)[0]
    assert (left, top) == pytest.approx((15, 30), abs=8)
    assert (report["camera"]["frames"], report["camera"]["dropped"]) == (4, 0)
    assert (report["text-detect"]["scaled"], report["text-read"]["lines"]) == (0, 12)
    links = pipeline.status()["links"]
    assert links["camera.text-detect"]["sent"] == links["text-detect.text-read"]["sent"] == 5  # with the end
    assert copies(pipeline.status()) == dict.fromkeys(links, 0)


def test_slow_reader__frames_are_dropped_at_the_source(eyes: Callable[..., Any], sign: Path) -> None:
    """In real time, while the detector stands still: the camera drops, the links lose nothing, and nobody waits."""
    pipeline = eyes("pace: true, loop: true, count: 6")
    detector = pipeline.status()["stages"]["text-detect"]["pid"]
    with pipeline.request({"camera": {"source": str(sign)}}) as request:
        os.kill(detector, signal.SIGSTOP)
        threading.Timer(3.0, os.kill, (detector, signal.SIGCONT)).start()
        texts = [output.map["text"] for output in request.outputs() if output.port == "found"]
        camera = request.report["camera"]

    assert texts == ["\n".join(LINES)] * 6
    assert camera["frames"] == 6
    assert camera["dropped"] > 0
    links = pipeline.status()["links"]
    assert links["camera.text-detect"]["dropped"] == 0
    assert links["camera.text-detect"]["sent"] == 7  # with the end
    assert copies(pipeline.status()) == dict.fromkeys(links, 0)


def test_answers__one_for_each_text(ocr_package: Path, tmp_path: Path, write_video: Callable[..., None]) -> None:
    """A sign that changes is answered anew; the request ends with its last answer, not with its first."""
    signs = [["Paris 80 km"], ["Paris 80 km"], ["Berlin 120 km"], ["Madrid 40 km"]]
    video, path = tmp_path / "signs.mp4", tmp_path / "signs.yaml"
    write_video(str(video), *signs, rate=2, seconds=2)
    stages = "camera: {width: 320, height: 256, multiple: 32}\n    llm: {model: llm, sampling: {max_tokens: 8}}"
    eyes = EYES.format(package=ocr_package, camera="rate: 2")
    camera = next(line for line in eyes.splitlines() if "camera:" in line)
    path.write_text(eyes.replace(camera, f"    {stages}") + "    - {from: text-read.text, to: llm.text}\n")

    with (
        Pipeline.open(path, board="host") as pipeline,
        pipeline.request({"camera": {"source": str(video)}, "llm": {"question": "How far is it?"}}) as request,
    ):
        said = {output.turn for output in request.outputs() if output.stage == "llm" and output.kind is Kind.TEXT}
        report = request.report

    assert said == {1, 2, 3}
    assert (report["llm"]["answers"], report["text-read"]["texts"]) == (3, 3)


def test_bad_video__fails_its_request_only(eyes: Callable[..., Any], sign: Path, tmp_path: Path) -> None:
    """The error names stage and file; the next request is served."""
    bad = tmp_path / "bad.mp4"
    bad.write_bytes(sign.read_bytes()[:2000])
    pipeline = eyes("rate: 1")
    for source, message in ((bad, "not a video that can be read"), (tmp_path / "none.mp4", "there is no such video")):
        with (
            pytest.raises(InputError, match=f"stage camera: {source}: {message}"),
            pipeline.request({"camera": {"source": str(source)}}) as request,
        ):
            list(request.outputs())
    with pipeline.request({"camera": {"source": str(sign), "count": 1}}) as request:
        assert [output.map["text"] for output in request.outputs() if output.port == "found"] == ["\n".join(LINES)]


def test_example__answers_the_question(ocr_package: Path, tmp_path: Path) -> None:
    """What the README says to type prints what it says."""
    video = tmp_path / "sign.mp4"
    run_example("make_video.py", video, *LINES[:2])
    printed = run_example("main.py", ocr_package, video, QUESTION).splitlines()

    readme = (EXAMPLE / "README.md").read_text()
    promised = readme.split("<!-- expected:begin -->\n```\n")[1].split("```")[0].splitlines()
    assert printed == promised
    assert "platform 7" in printed[1]


def run_example(name: str, *arguments: object) -> str:
    """What it prints."""
    command = [sys.executable, str(EXAMPLE / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_S, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("model", "graph", "shape"), [("detect", "detect", (96, 160, 3)), ("read", "read", (48, 200, 3))]
)
def test_graphs__are_the_files_own(ocr_package: Path, model: str, graph: str, shape: tuple[int, ...]) -> None:
    """Bytes of RGB give what the shipped file gives for the normalised BGR that it was trained on."""
    image = np.random.default_rng(5).integers(0, 256, shape, np.uint8)
    files = pull(f"ppocr-v6-small-{model}")
    path = next(iter(files.dir.glob("*.onnx")))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    planes = ((image[:, :, ::-1] / 255 - 0.5) / 0.5).astype(np.float32).transpose(2, 0, 1)[None]
    expected = np.squeeze(session.run(None, {"x": planes})[0])

    executable = bind_here(open_package(ocr_package, check="fast"), "auto").model(model).load(graph, Budget())
    found = executable.run({executable.inputs[0].name: image})[executable.outputs[0].name]

    np.testing.assert_allclose(found, expected, atol=1e-4)
