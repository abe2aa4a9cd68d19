# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode of a made-up Llama in each block format beside llama.cpp on the same file, one thread each.

Usage: python tests/bench/bench_decoders.py [rounds] [format ...]     (needs xllamacpp: llama.cpp as a prebuilt wheel)

The weights are random, the sizes those of a small model (16 layers of 1024); Q4_K_M mixes Q4_K and Q6_K as llama.cpp
does. Answers mean nothing, speeds do.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from peers import header, show

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "compiler" / "made"))

import xllamacpp
from dpfedge_cpu import CpuBackend
from made_decoder import decoder_model
from made_gguf import TYPES, blocks

from dpfedge.backend.api import Budget, GraphView, LowerRequest

LAYERS, WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 16, 1024, 4096, 16, 8, 64, 32768
PROMPT, TOKENS, CONTEXT = 128, 48, 512
_MORE = {layer for layer in range(LAYERS) if layer < 2 or layer >= 14 or (layer - 2) % 3 == 2}
"""Layers whose values and down projections llama.cpp keeps at 6 bits in Q4_K_M."""
MATRICES = {"attn_q": (HEADS * HEAD_DIM, WIDTH), "attn_k": (KV_HEADS * HEAD_DIM, WIDTH),
            "attn_v": (KV_HEADS * HEAD_DIM, WIDTH), "attn_output": (WIDTH, HEADS * HEAD_DIM),
            "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}  # fmt: skip


def kind_of(title: str, layer: int, part: str) -> str:
    """The format of one matrix in a file called `title`."""
    if title != "Q4_K_M":
        return title
    return "Q6_K" if part == "token_embd" or (layer in _MORE and part in ("attn_v", "ffn_down")) else "Q4_K"


def write(path: Path, title: str) -> None:
    """A model of random blocks."""
    random, writer = np.random.default_rng(0), gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["<s>", "</s>", *[f"t{index}" for index in range(VOCABULARY - 2)]])
    writer.add_token_types([3, 3, *[1] * (VOCABULARY - 2)])
    writer.add_token_merges(["t 1"])
    writer.add_eos_token_id(1)

    def matrix(name: str, kind: str, rows: int, columns: int) -> None:
        data = np.frombuffer(blocks(kind, rows, columns, random), np.uint8).reshape(rows, -1)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType(TYPES[kind]))

    matrix("token_embd", kind_of(title, 0, "token_embd"), VOCABULARY, WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        for part, (rows, columns) in MATRICES.items():
            matrix(f"blk.{layer}.{part}", kind_of(title, layer, part), rows, columns)
        for part in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{part}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Ours:
    """The graph as the CPU backend lowers it for this machine, greedy."""

    def __init__(self, path: Path) -> None:
        backend = CpuBackend()
        device = backend.devices(Path("/"))[0]
        model = decoder_model(path, context=CONTEXT, mode="fast").SerializeToString()
        lowered = backend.lower(LowerRequest("llm", model, device.arch, device.features))
        weights = {f"w{index}": memoryview(array).cast("B") for index, array in enumerate(lowered.weights.values())}
        places = {name: (f"w{index}", 0, array.nbytes) for index, (name, array) in enumerate(lowered.weights.items())}
        code = memoryview(backend.finish(lowered, places))
        graph = backend.load(GraphView("llm", code, lowered.inputs, lowered.outputs, weights), device, Budget())
        self._call, self._mask = graph.bind(), np.ones((1, CONTEXT), np.int64)
        for spec in graph.inputs:
            if spec.name.startswith("past_key_values."):
                memory = np.zeros([int(size) for size in spec.dims], np.float32)
                self._call.set_input(spec.name, memory)
                self._call.set_output(spec.name.replace("past_key_values", "present"), memory)

    def _run(self, ids: list[int], total: int) -> int:
        self._call.set_input("input_ids", np.asarray(ids, np.int64)[None])
        self._call.set_input("attention_mask", self._mask[:, :total])
        self._call.run()
        return int(self._call.output("logits").argmax())

    def both(self, prompt: list[int]) -> tuple[float, float]:
        """Seconds of the prefill and of the decode."""
        started = time.perf_counter()
        token = self._run(prompt, len(prompt))
        middle = time.perf_counter()
        for index in range(TOKENS):
            token = self._run([token], len(prompt) + 1 + index)
        return middle - started, time.perf_counter() - middle


class Llama:
    """llama.cpp's server in this process, by its own clock."""

    def __init__(self, path: Path) -> None:
        options = xllamacpp.CommonParams()
        options.model.path, options.n_ctx, options.n_parallel, options.verbosity = str(path), CONTEXT, 1, 0
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
        self._server = xllamacpp.Server(options)

    def both(self, prompt: list[int]) -> tuple[float, float]:
        """Seconds of the prefill and of the decode."""
        asked = {"prompt": prompt, "n_predict": TOKENS, "temperature": 0.0, "cache_prompt": False, "ignore_eos": True}
        spent: dict[str, Any] = self._server.handle_completions(asked)["timings"]
        return spent["prompt_ms"] / 1e3, spent["predicted_ms"] / 1e3


def main() -> None:
    """One table for each format."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    header()
    prompt = np.random.default_rng(0).integers(2, VOCABULARY, PROMPT).tolist()
    for title in sys.argv[2:] or ["Q4_K_M", "Q4_0", "Q5_K", "Q6_K", "Q8_0"]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            write(path, title)
            engines: dict[str, Ours | Llama] = {"ours": Ours(path), "llama.cpp": Llama(path)}
            spent: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
            for _ in range(count + 1):  # the first does not count
                for name, engine in engines.items():
                    spent[name].append(engine.both(prompt))
        for place, (what, tokens) in enumerate((("prefill", PROMPT), ("decode", TOKENS))):
            speeds = {name: [tokens / pair[place] for pair in pairs[1:]] for name, pairs in spent.items()}
            show(f"{title}: {what} of {tokens} tokens, higher is better", speeds, "ours", "tokens/s", 1)


if __name__ == "__main__":
    main()
