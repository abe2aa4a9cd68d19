# SPDX-License-Identifier: Apache-2.0
"""The demo's real models through the compiler: logits, transcripts and samples against the originals."""

from __future__ import annotations

import os
import wave
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime

from dpfedge.backend.api import Budget, GraphView, LowerRequest
from dpfedge.backend.registry import Registry
from dpfedge.compiler.decoder import build_decoder
from dpfedge.compiler.decoder.gguf import GgufSource, gguf_shape
from dpfedge.compiler.emit import compile_package
from dpfedge.compiler.importer.ggml import dequantise
from dpfedge.compiler.importer.gguf import open_gguf
from dpfedge.compiler.recipe import load_recipe
from dpfedge.models import cached, pull
from dpfedge.package import open_package

NEEDED = (
    "silero-vad",
    "moonshine-tiny-en",
    "smollm2-135m-instruct-q4_1",
    "piper-en-us-joe",
    "moonshine-speech-samples",
)
RECIPE = Path(__file__).parents[2] / "examples" / "voice" / "voice.yaml"
PROMPT = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182]

pytestmark = pytest.mark.skipif(not all(map(cached, NEEDED)), reason="`dpfedge models pull` has not filled the cache")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The demo package for this machine."""
    path = tmp_path_factory.mktemp("compile") / "voice.dpfbin"
    compile_package(load_recipe(RECIPE), path, boards=["host"], registry=Registry.load())
    return open_package(path, check="fast")


def load(package: Any, model: str, graph: str) -> Any:
    """One graph, as binding would load it."""
    backend = Registry.load().get("cpu")
    found = package.manifest.targets[0].models[model].graphs[graph]
    weights = {name: package.section(name) for name in found.weights}
    view = GraphView(graph, package.section(found.section), found.inputs, found.outputs, weights, found.options)
    return backend.load(view, backend.devices(Path("/"))[0], Budget())


def reference_logits(path: Path, ids: list[int]) -> np.ndarray[Any, Any]:
    """f32[vocabulary] in NumPy from the file's own blocks."""
    gguf = open_gguf(path)
    shape, count = gguf_shape(gguf), len(ids)

    def weight(name: str) -> Any:
        return dequantise(gguf.tensors[name])

    def norm(x: Any, name: str) -> Any:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + shape.epsilon) * weight(name)

    angles = np.outer(np.arange(count), shape.rotary.base ** -(np.arange(0, shape.head_dim, 2) / shape.head_dim))
    turn = np.exp(1j * angles)[:, None]

    def rotate(x: Any) -> Any:
        return ((x[..., 0::2] + 1j * x[..., 1::2]) * turn).view(np.float64)

    x = weight("token_embd.weight")[ids].astype(np.float64)
    mask = np.triu(np.full((count, count), -np.inf), 1)
    for layer in range(shape.layers):
        base = f"blk.{layer}"
        h = norm(x, f"{base}.attn_norm.weight")
        q, k, v = ((h @ weight(f"{base}.attn_{p}.weight").T).reshape(count, -1, shape.head_dim) for p in "qkv")
        k, v = (np.repeat(part, shape.heads // shape.kv_heads, 1) for part in (rotate(k), v))
        scores = np.einsum("ihd,jhd->hij", rotate(q), k) / np.sqrt(shape.head_dim) + mask
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", scores, v).reshape(count, -1) @ weight(f"{base}.attn_output.weight").T
        h = norm(x, f"{base}.ffn_norm.weight")
        gate = h @ weight(f"{base}.ffn_gate.weight").T
        gated = gate / (1 + np.exp(-gate)) * (h @ weight(f"{base}.ffn_up.weight").T)
        x = x + gated @ weight(f"{base}.ffn_down.weight").T
    return np.asarray(norm(x[-1], "output_norm.weight") @ weight("token_embd.weight").T)


def test_llm__logits_within_the_fast_mode_s_bound(package: Any) -> None:
    """Relative L2 of the real model's logits ≤ 0.06 of the float32 reference; the best token is the same."""
    graph = load(package, "llm", "llm")
    feeds = {spec.name: np.zeros(spec.dims, np.float32) for spec in graph.inputs if spec.dtype == "f32"}
    count = len(PROMPT)
    run = graph.run({"input_ids": np.array([PROMPT]), "attention_mask": np.ones((1, count), np.int64), **feeds})
    wanted = reference_logits(pull("smollm2-135m-instruct-q4_1").path("SmolLM2-135M-Instruct.Q4_1.gguf"), PROMPT)

    assert np.linalg.norm(run["logits"][0, 0] - wanted) / np.linalg.norm(wanted) <= 0.06


def test_llm__exact_mode() -> None:
    """In exact mode the relative difference is at most 1e-4."""
    path, backend = (
        pull("smollm2-135m-instruct-q4_1").path("SmolLM2-135M-Instruct.Q4_1.gguf"),
        Registry.load().get("cpu"),
    )
    gguf = open_gguf(path)
    source = GgufSource(gguf, gguf_shape(gguf))
    model = build_decoder(source, gguf_shape(gguf), context=len(PROMPT), mode="exact")
    lowered = backend.lower(LowerRequest("llm", model.SerializeToString(), "x86-64-v3", frozenset()))
    places = {name: (f"w{index}", 0, array.nbytes) for index, (name, array) in enumerate(lowered.weights.items())}
    weights = {places[name][0]: memoryview(array).cast("B") for name, array in lowered.weights.items()}
    code = memoryview(backend.finish(lowered, places))
    graph = backend.load(
        GraphView("llm", code, lowered.inputs, lowered.outputs, weights), backend.devices(Path("/"))[0], Budget()
    )
    feeds = {spec.name: np.zeros(spec.dims, np.float32) for spec in graph.inputs if spec.dtype == "f32"}
    feeds |= {"input_ids": np.array([PROMPT]), "attention_mask": np.ones((1, len(PROMPT)), np.int64)}
    wanted = reference_logits(path, PROMPT)

    assert np.linalg.norm(graph.run(feeds)["logits"][0, 0] - wanted) / np.linalg.norm(wanted) <= 1e-4


def recording() -> np.ndarray[Any, Any]:
    """Ten seconds of real speech, f32 at 16 kHz."""
    with wave.open(str(pull("moonshine-speech-samples").path("beckett.wav"))) as file:
        assert file.getframerate() == 16000
        return np.frombuffer(file.readframes(160_000), "<i2").astype(np.float32) / 32768


def test_vad__equals_the_original(package: Any) -> None:
    """Every probability and state along ten seconds of speech is the original's."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    original = onnxruntime.InferenceSession(str(pull("silero-vad").path("silero_vad_16k_op15.onnx")), options)
    graph, samples = load(package, "vad", "vad"), recording()
    ours = theirs = np.zeros((2, 1, 128), np.float32)
    probabilities = []
    for start in range(0, len(samples) - 576, 512):
        window = samples[None, start : start + 576]
        found = graph.run({"input": np.ascontiguousarray(window), "state": ours})
        wanted = original.run(["output", "stateN"], {"input": window, "state": theirs, "sr": np.array(16000)})
        ours, theirs = found["stateN"], wanted[1]
        probabilities.append((float(found["output"][0, 0]), float(wanted[0][0, 0])))
    mine, reference = np.array(probabilities).T

    assert np.abs(mine - reference).max() < 1e-4
    assert mine.max() > 0.9


def transcript(package: Any, samples: np.ndarray[Any, Any]) -> list[int]:
    """Greedy token ids, as the encoder stage decodes."""
    encode, first, step = (load(package, "speech", name) for name in ("encode", "decode_first", "decode_step"))
    features = encode.run({"samples": samples[None]})["features"]
    start = first.run({"tokens": np.array([[1]]), "features": features})
    call = step.bind()
    for name, array in start.items():
        if name.startswith("cross."):
            call.set_input(name, array)
        elif name.startswith("present."):
            call.set_input(name.replace("present", "past"), array)
            call.link(name, name.replace("present", "past"))
    call.set_input("last", start["token"])
    call.link("token", "last")
    ids = [int(start["token"][0, 0])]
    while ids[-1] != 2 and len(ids) < 65:
        call.run()
        ids.append(int(call.output("token")[0, 0]))
    return ids


def test_speech__transcript_of_real_speech(package: Any) -> None:
    """The first ten seconds of a recording give its words."""
    data, place, entries = pull("moonshine-tiny-en").path("tokenizer.bin").read_bytes(), 0, list[bytes]()
    while place < len(data):
        entries.append(data[place + 1 : place + 1 + data[place]])
        place += 1 + data[place]
    text = (
        b"".join(entries[token] for token in transcript(package, recording()) if token > 258)
        .decode()
        .replace("\u2581", " ")
    )

    assert text.strip() == "Ever tried, ever failed, no matter, try again, fail again, fail better."


def test_voice__equals_the_original(package: Any) -> None:
    """Without noise the two graphs give the original's samples, whole and in overlapping windows."""
    files = pull("piper-en-us-joe")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    original = onnxruntime.InferenceSession(str(files.path("en_US-joe-medium.onnx")), options)
    ids = np.random.default_rng(3).integers(3, 100, (1, 60))
    feeds = {"input": ids, "input_lengths": np.array([60]), "scales": np.array([0, 1, 0], np.float32)}
    config = SimpleNamespace(**package.manifest.models["voice"].config)
    latent = load(package, "voice", "encode").run(feeds)["latent"]
    decode = load(package, "voice", "decode")
    whole = decode.run({"latent": latent})["samples"].reshape(-1)
    part = decode.run({"latent": np.ascontiguousarray(latent[:, :, 40 - config.overlap : 50 + config.overlap])})[
        "samples"
    ]
    inside = part.reshape(-1)[config.hop * config.overlap : config.hop * (config.overlap + 10)]

    assert np.abs(whole - original.run(None, feeds)[0].reshape(-1)).max() < 1e-4
    assert np.abs(inside - whole[config.hop * 40 : config.hop * 50]).max() < 1e-4
