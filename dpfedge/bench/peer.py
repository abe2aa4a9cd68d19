# SPDX-License-Identifier: Apache-2.0
"""The plain baseline as a process beside ours: model files in, its turns' instants out; see `baseline/plain.py`."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfedge.bench.voice_turn import TurnTimes
from dpfedge.errors import Unavailable
from dpfedge.models import pull
from dpfedge.stage.llm.config import LlmConfig

__all__ = ["PlainPeer", "plain_setup"]

_NEEDS = {"llama_cpp": "llama-cpp-python", "piper": "piper-tts", "onnxruntime": "onnxruntime"}


class PlainPeer:
    """One running baseline process; use it as a context manager."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        missing = [package for module, package in _NEEDS.items() if importlib.util.find_spec(module) is None]
        if missing:
            raise Unavailable(
                "the plain baseline cannot run: libraries are missing",
                where="bench",
                found=", ".join(missing),
                remedy="pip install 'dpfedge[bench]'",
            )
        started = time.monotonic_ns()
        command = [sys.executable, "-m", "dpfedge.bench.baseline.plain"]
        env = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "OPENBLAS_"))}
        env["ORT_DISABLE_TELEMETRY"] = "1"  # its wheel writes a database into the home folder by default
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        try:
            ready = self._ask(setup)
        except Unavailable:
            self.close()
            raise
        self.load_ms = ready["load_ms"]
        self.ready_ms = (ready["ready_ns"] - started) / 1e6

    def turn(self, pcm: Path, silence_ms: int) -> TurnTimes:
        """One spoken turn at microphone pace."""
        found = self._ask({"do": "turn", "pcm": str(pcm), "silence_ms": silence_ms})
        return TurnTimes(**{name: found[name] for name in found if name in TurnTimes.__dataclass_fields__})

    def memory(self) -> dict[str, int]:
        """`rss_bytes` and `pss_bytes` now."""
        return self._ask({"do": "memory"})

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()

    def __enter__(self) -> PlainPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it ended; its exit code says more
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable(
                "the plain baseline ended",
                where="bench",
                found=f"exit code {self._process.wait()}",
                remedy="see its messages above",
            )
        return dict(json.loads(line))


def plain_setup(pipeline: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """What the baseline needs: the original files of the demo's models, and the package's own prompt and sampling."""
    vad, speech = pull("silero-vad"), pull("moonshine-tiny-en")
    llm, voice = pull("smollm2-135m-instruct-q4_1"), pull("piper-en-us-joe")
    stage = pipeline["stages"]["llm"]
    prompt = [{"role": "system", "content": stage["system"]}]
    for example in stage.get("examples", ()):
        prompt += [{"role": "user", "content": example["user"]}, {"role": "assistant", "content": example["assistant"]}]
    names = {
        "vad": vad.path("silero_vad_16k_op15.onnx"), "encoder": speech.path("encoder_model.ort"),
        "decoder": speech.path("decoder_model_merged.ort"), "tokens": speech.path("tokenizer.bin"),
        "gguf": llm.path("SmolLM2-135M-Instruct.Q4_1.gguf"), "voice": voice.path("en_US-joe-medium.onnx"),
        "voice_config": voice.path("en_US-joe-medium.onnx.json"),
    }  # fmt: skip
    settings = LlmConfig.of({name: value for name, value in stage.items() if name != "model"})
    return {
        "files": {name: str(path) for name, path in names.items()}, "threads": threads, "prompt": prompt,
        "context": 2048,
        "repeat_penalty": settings.sampling.repeat_penalty, "max_tokens": settings.sampling.max_tokens or 64,
        "first_words": settings.first_words, "clause_words": settings.clause_words,
    }  # fmt: skip
