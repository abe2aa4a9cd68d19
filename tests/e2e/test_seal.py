# SPDX-License-Identifier: Apache-2.0
"""`dpfedge seal` on the demo package: every process shares the packed weights, and nothing it computes changes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dpfedge.binding import bind_here
from dpfedge.errors import StoreBusy
from dpfedge.package import open_package
from dpfedge.package.residency import residency
from dpfedge.package.sidecar import sidecar_of
from dpfedge.pipeline.events import TextDelta
from dpfedge.runtime import Runtime
from dpfedge.store import Store

HOLDER = Path(__file__).parent / "made" / "made_holder.py"
MODELS = ("vad", "speech", "llm", "voice")


class Holder:
    """A process that holds one model."""

    def __init__(self, package: Path, model: str, form: str) -> None:
        command = [sys.executable, str(HOLDER), str(package), model, form]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.loaded = self.hear()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def outputs(self, names: list[str]) -> dict[str, str]:
        """Graph → digest of what one run gives."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(names) + "\n")
        self.process.stdin.flush()
        found: dict[str, str] = self.hear()["outputs"]
        return found

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *parts: object) -> None:
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def sealed(voice_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo package with a seal of this machine beside it."""
    path = tmp_path_factory.mktemp("sealed") / "voice, größe 1.dpfbin"
    try:
        os.link(voice_package, path)
    except OSError:
        shutil.copy(voice_package, path)
    command = [sys.executable, "-m", "dpfedge", "seal", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {item["model"] for item in found["built"]} == set(MODELS) - {"llm"}, "its products use the package's weights"
    assert found["prefixes"] == ["llm"]
    return path


@pytest.mark.parametrize("model", MODELS)
def test_seal__a_second_process_has_no_weights_of_its_own(sealed: Path, model: str) -> None:
    """Beside the objects of the graphs, less than 5 % of the weights' bytes is its own; results are equal.

    Also without a seal where nothing is packed, as of the language model.
    """
    with ExitStack() as held:
        first, second, plain, unpacked = (
            held.enter_context(Holder(sealed, model, form)) for form in ("packed", "packed", "plain", "unpacked")
        )
        objects, weights = unpacked.loaded["grown"], second.loaded["weights"]

        without = plain.loaded["grown"] - objects
        assert without < 0.05 * weights if model == "llm" else without > second.loaded["grown"] - objects
        assert second.loaded["grown"] - objects < 0.05 * weights
        names = list(bind_here(open_package(sealed, check="fast")).model(model).graphs)
        assert first.outputs(names) == second.outputs(names) == plain.outputs(names)
        with open_package(sealed, check="fast") as package:
            assert residency(second.process.pid, package)["weights"].private < 0.05 * weights


def test_seal__fits_here_and_says_so(sealed: Path) -> None:
    """The seal is bound with everything in it, and its opening comes before the package's."""
    bound = bind_here(open_package(sealed, check="fast"), check="full")

    assert bound.stale == ()
    assert bound.model("llm").prefix().source == "seal"


def test_seal__killed_while_it_builds_leaves_the_old_one(sealed: Path) -> None:
    """The sidecar is the old one until the new one is complete and durable, whatever happens to the process."""
    sidecar = sidecar_of(sealed)
    before = hashlib.sha256(sidecar.read_bytes()).digest()
    command = [sys.executable, "-m", "dpfedge", "seal", str(sealed), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        unfinished: list[Path] = []
        while not any(path.stat().st_size > 1 << 20 for path in unfinished):
            assert process.poll() is None, "it was quicker than this test"
            unfinished = list(sealed.parent.glob(".*.part"))
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)

    assert hashlib.sha256(sidecar.read_bytes()).digest() == before
    assert bind_here(open_package(sealed, check="fast"), check="full").stale == ()
    for path in unfinished:
        path.unlink()


def test_seal__of_an_installed_package_is_built_once(voice_package: Path, tmp_path: Path) -> None:
    """A second process is told who builds; `gc`, run all the while, takes away no part of it, signed nor unsigned."""
    environ = {**os.environ, "DPFEDGE_STORE": str(tmp_path / "store")}
    key = tmp_path / "device.key"

    def dpfedge(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "dpfedge", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)

    for words in (["keygen", "--name", "device", "-o", str(key)], ["install", str(voice_package), "--allow-unsigned"]):
        done = dpfedge(*words)
        assert done.communicate(timeout=500)[1] is not None
        assert done.returncode == 0
    store = Store(tmp_path / "store")
    path = store.active("voice").path
    with dpfedge("seal", "voice", "--key", str(key)) as first:
        while not list(path.parent.glob(".*.part")):
            assert first.poll() is None, "it was quicker than this test"
            time.sleep(0.01)
        with dpfedge("seal", str(path)) as second:
            assert f"found pid {first.pid} (dpfedge seal voice); wait for it" in second.communicate(timeout=60)[1]
        assert second.returncode == StoreBusy.exit_code
        deleted: list[Path] = []
        while first.poll() is None:
            deleted += store.gc().deleted
        told, said = first.communicate(timeout=60)
    assert (first.returncode, deleted) == (0, []), said
    assert told.startswith(f"{sidecar_of(path)}: ")
    assert bind_here(open_package(path, check="fast"), check="full").stale == ()


def test_seal__serves_the_same_answers(sealed: Path, voice_package: Path) -> None:
    """A pipeline on the sealed package says so in its status, and answers word for word as without the seal."""
    answers = []
    for path in (sealed, voice_package):
        with Runtime.open(path, board="host", allow_unsigned=True) as runtime:
            events = runtime.chat([{"role": "user", "content": "What is the capital of France?"}])
            answers.append("".join(event.text for event in events if isinstance(event, TextDelta)))
            status = runtime.status()
        if path == sealed:
            assert status["seal"] == {"path": str(sidecar_of(sealed)), "stale": []}
            assert status["stages"]["llm"]["facts"]["prefix"] == "seal"
    assert answers[0] == answers[1] != ""


def _ready(status: Any) -> bool:
    return all(row["state"] == "ready" for row in status["stages"].values())


def test_seal__anew_while_it_is_served(sealed: Path) -> None:
    """Stages and their parent come back on the sidecar that was opened, not on the one that has its name by now."""
    with Runtime.open(sealed, board="host", allow_unsigned=True) as runtime:
        zygote = runtime.status()["zygote"]["pid"]
        kept = sidecar_of(sealed).rename(sealed.with_name("kept"))
        try:
            os.kill(zygote, signal.SIGKILL)
            end = time.monotonic() + 60
            while (now := runtime.status())["zygote"]["pid"] == zygote or not _ready(now):
                assert time.monotonic() < end, "the stages do not come back"
                time.sleep(0.05)
        finally:
            kept.rename(sidecar_of(sealed))
        assert runtime.status()["stages"]["llm"]["facts"]["prefix"] == "seal"
