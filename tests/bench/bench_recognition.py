# SPDX-License-Identifier: Apache-2.0
"""Recognition of the same ten seconds beside sherpa-onnx and moonshine-voice, which use the same model files.

Usage: python tests/bench/bench_recognition.py build/voice.dpfbin [rounds]     (needs sherpa-onnx and moonshine-voice)
"""

from __future__ import annotations

import base64
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sherpa_onnx
from moonshine_voice import ModelArch, Transcriber
from peers import Samples, bound, header, pull, recording, rounds, show

from dpfedge.backend.api import Budget
from dpfedge.stage.encoder import EncoderStage
from dpfedge.stage.encoder.tokens import Tokens, _entries

SECONDS = 10.0


def ours(package: str, threads: int, samples: Samples) -> tuple[Callable[[], float], list[str]]:
    """The encoder stage's own recogniser."""
    model = bound(package).model("speech")
    stage = EncoderStage(model, {}, Budget(threads=threads))
    tokens = Tokens(model.asset("tokenizer.bin"), first_special=int(model.config["special_from"]))
    texts: list[str] = []

    def run() -> float:
        started = time.perf_counter()
        steps = stage._recogniser.recognise(samples)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            texts.append(tokens.text(end.value.tokens))
        return time.perf_counter() - started

    return run, texts


def sherpa(folder: Path, threads: int, samples: Samples) -> tuple[Callable[[], float], list[str]]:
    """sherpa-onnx's offline recogniser on the shipped files."""
    files = pull("moonshine-tiny-en")
    table = folder / "tokens.txt"
    entries = _entries(memoryview(files.path("tokenizer.bin").read_bytes()))
    rows = [base64.b64encode(entry).decode() + f"\t{index}" for index, entry in enumerate(entries)]
    table.write_text("\n".join(rows) + "\n")
    recogniser = sherpa_onnx.OfflineRecognizer.from_moonshine_v2(
        encoder=str(files.path("encoder_model.ort")), decoder=str(files.path("decoder_model_merged.ort")),
        tokens=str(table), num_threads=threads,
    )  # fmt: skip
    texts: list[str] = []

    def run() -> float:
        started = time.perf_counter()
        stream = recogniser.create_stream()
        stream.accept_waveform(16000, samples)
        recogniser.decode_stream(stream)
        texts.append(stream.result.text)
        return time.perf_counter() - started

    return run, texts


def moonshine(samples: Samples) -> tuple[Callable[[], float], list[str]]:
    """moonshine-voice with one segment, on the two threads it chooses."""
    folder = pull("moonshine-tiny-en").dir
    options = {"vad_threshold": "0.0", "vad_max_segment_duration": "15.0"}
    transcriber: Any = Transcriber(str(folder), ModelArch.TINY, options=options)
    values, texts = samples.tolist(), list[str]()

    def run() -> float:
        started = time.perf_counter()
        found = transcriber.transcribe_without_streaming(values, 16000)
        texts.append(" ".join(line.text for line in found.lines))
        return time.perf_counter() - started

    return run, texts


def main() -> None:
    """One table per recording."""
    package, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    header()
    for name in ("beckett", "two_cities"):
        samples = recording(name, SECONDS)
        with tempfile.TemporaryDirectory() as folder:
            one, text = ours(package, 1, samples)
            peer, peer_text = sherpa(Path(folder), 1, samples)
            show(f"{name}, 1 thread each", rounds(count, {"dpfedge": one, "sherpa-onnx": peer}), "dpfedge")
            print(f"  ours:   {text[-1]}\n  sherpa: {peer_text[-1]}")
        two, _ = ours(package, 2, samples)
        other, other_text = moonshine(samples)
        show(f"{name}, 2 threads", rounds(count, {"dpfedge": two, "moonshine-voice": other}), "dpfedge")
        print(f"  moonshine-voice: {other_text[-1]}")


if __name__ == "__main__":
    main()
