# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode of the demo's llm beside llama-cpp-python on the same GGUF, with the same number of threads.

Usage: python tests/bench/bench_llm.py build/voice.dpfbin [rounds]     (needs llama-cpp-python)
"""

from __future__ import annotations

import sys
import time

import llama_cpp
import numpy as np
from peers import bound, header, pull, rounds, show

from dpfedge.backend.api import Budget

PROMPT, TOKENS, CONTEXT = 128, 48, 2048


class Ours:
    """The package's graph through the backend contract, greedy."""

    def __init__(self, package: str, threads: int) -> None:
        graph = bound(package).model("llm").load("llm", Budget(threads=threads))
        self._run = graph.bind()
        for spec in graph.inputs:
            if spec.name.startswith("past_key_values."):
                memory = np.zeros([size if isinstance(size, int) else CONTEXT for size in spec.dims], np.float32)
                self._run.set_input(spec.name, memory)
                self._run.set_output(spec.name.replace("past_key_values", "present"), memory)
        logits = next(spec for spec in graph.outputs if spec.name == "logits")
        self._logits = np.zeros([int(size) for size in logits.dims], np.float32)
        self._run.set_output("logits", self._logits)
        self._mask = np.ones((1, CONTEXT), np.int64)

    def eval(self, ids: list[int], total: int) -> int:
        """Run `ids`; the best next token."""
        self._run.set_input("input_ids", np.asarray(ids, np.int64)[None])
        self._run.set_input("attention_mask", self._mask[:, :total])
        self._run.run()
        return int(self._logits.argmax())

    def both(self, prompt: list[int]) -> tuple[float, float]:
        """Seconds of the prefill and of the decode."""
        started = time.perf_counter()
        token = self.eval(prompt, len(prompt))
        middle = time.perf_counter()
        for index in range(TOKENS):
            token = self.eval([token], len(prompt) + 1 + index)
        return middle - started, time.perf_counter() - middle


class Llama:
    """llama.cpp, greedy."""

    def __init__(self, threads: int) -> None:
        path = pull("smollm2-135m-instruct-q4_1").path("SmolLM2-135M-Instruct.Q4_1.gguf")
        self._llama = llama_cpp.Llama(
            str(path), n_ctx=CONTEXT, n_threads=threads, n_threads_batch=threads, verbose=False
        )

    def both(self, prompt: list[int]) -> tuple[float, float]:
        """Seconds of the prefill and of the decode."""
        self._llama.reset()
        started = time.perf_counter()
        self._llama.eval(prompt)
        middle = time.perf_counter()
        for _ in range(TOKENS):
            logits = llama_cpp.llama_get_logits_ith(self._llama.ctx, -1)
            token = int(np.ctypeslib.as_array(logits, (self._llama.n_vocab(),)).argmax())
            self._llama.eval([token])
        return middle - started, time.perf_counter() - middle


def main() -> None:
    """One table per number of threads."""
    package, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    header()
    prompt = np.random.default_rng(0).integers(100, 40000, PROMPT).tolist()
    for threads in (1, 2):
        ours, theirs = Ours(package, threads), Llama(threads)
        spent: dict[str, list[tuple[float, float]]] = {"ours": [], "llama.cpp": []}

        def run(name: str, engine: Ours | Llama, spent: dict[str, list[tuple[float, float]]] = spent) -> float:
            spent[name].append(engine.both(prompt))
            return 0.0

        rounds(count, {"ours": lambda o=ours: run("ours", o), "llama.cpp": lambda t=theirs: run("llama.cpp", t)})
        for place, (what, tokens) in enumerate((("prefill", PROMPT), ("decode", TOKENS))):
            speeds = {name: [tokens / pair[place] for pair in pairs[1:]] for name, pairs in spent.items()}
            show(f"{what}, {threads} thread(s), {tokens} tokens, higher is better", speeds, "ours", "tokens/s", 1)


if __name__ == "__main__":
    main()
