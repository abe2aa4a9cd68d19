# SPDX-License-Identifier: Apache-2.0
"""The demo's own stages in a graph that somebody drew: a spoken question about a text that was seen, answered aloud."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from made_car import Car

from dpfedge import Pipeline
from dpfedge.errors import DeadlineExceeded
from dpfedge.stage.api import Kind

FILE = """name: sign
package: PACKAGE
pipeline:
  stages:
    decoder: {model: vad}
    encoder: {model: speech}
    llm:
      model: llm
      prompt: "A road sign says: {text}. {question}"
      sampling: {max_tokens: 12, temperature: 0}
      warm_opening: false
      sync: {lead: question, policy: nearest, tolerance: 60s, depth: 4}
    voice: {model: voice}
  links:
    - {from: decoder.speech, to: encoder.speech}
    - {from: encoder.text, to: llm.question}
    - {from: llm.clauses, to: voice.clauses}
"""


@pytest.fixture
def sign(tmp_path: Path, voice_package: Path) -> Path:
    """A pipeline file with the demo package's models."""
    (tmp_path / "sign.yaml").write_text(FILE.replace("PACKAGE", str(voice_package)))
    return tmp_path / "sign.yaml"


def test_question__about_what_was_seen_at_its_time(sign: Path, car: Car) -> None:
    """Heard, put together with the text, answered in words and aloud; no copy on the way."""
    form = {"decoder": {"format": {"encoding": "pcm_s16le", "rate": car.format.rate, "channels": 1}}}
    with Pipeline.open(sign) as pipeline:
        with pipeline.request(form) as request:
            request.send("llm.text", "STOP", captured_ns=time.monotonic_ns())
            for start in range(0, len(car.pcm), 40_000):
                request.send("decoder.audio", car.pcm[start : start + 40_000], captured_ns=time.monotonic_ns())
            request.finish()
            heard, words, samples = "", "", 0
            for output in request.outputs():
                if (output.stage, output.kind) == ("encoder", Kind.TEXT):
                    heard = output.map["text"]
                elif (output.stage, output.kind) == ("llm", Kind.TEXT):
                    words += output.text
                elif output.kind is Kind.AUDIO:
                    samples += output.array.size
        assert heard == "What is the capital of France?"
        assert len(words.split()) >= 5
        assert samples > 10_000
        assert request.report["llm"] == {"answers": 1, "dropped": {"text": 0, "question": 0}}
        between = {name: link["copies"] for name, link in pipeline.status()["links"].items()}
        assert sum(between.values()) == 0


def test_deadline__names_the_stage_that_was_at_work(sign: Path, car: Car) -> None:
    """Audio that never ends: the decoder waits for it when the time is over."""
    form = {"decoder": {"format": {"encoding": "pcm_s16le", "rate": car.format.rate, "channels": 1}}}
    with Pipeline.open(sign) as pipeline, pipeline.request(form, deadline_s=0.3) as request:
        request.send("decoder.audio", car.pcm[:40_000])
        with pytest.raises(DeadlineExceeded) as caught:
            list(request.outputs())
        assert caught.value.stage == "decoder"
