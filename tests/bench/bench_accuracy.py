# SPDX-License-Identifier: Apache-2.0
"""Fast-mode logits of the demo's llm, and llama.cpp's on the same GGUF, beside the same blocks in float32 (exact mode).

Usage: dpfedge compile examples/voice/voice.yaml -o build/exact.dpfbin --board host --mode exact
       python tests/bench/bench_accuracy.py build/voice.dpfbin build/exact.dpfbin     (needs llama-cpp-python)
Each prompt is one prefill from nothing; the figure is the relative L2 distance of the logits behind its last token.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
from peers import bound, header, pull

from dpfedge.backend.api import Budget
from dpfedge.stage.llm.cache import Pool
from dpfedge.stage.llm.tokenizer import Library, Tokenizer

Floats = np.ndarray[Any, np.dtype[np.float32]]
THREADS, CHUNK = 2, 128

PROMPTS = (
    "The capital of France is",
    "Once upon a time there was a little",
    "Water boils at",
    "My name is Anna and I live in",
    "The engine light is on. What should I do?",
    "The weather in Paris is usually",
    "What is the capital of Italy?",
    "Translate to French: Good morning",
    "1, 2, 3, 4, 5,",
    "To be or not to be, that is",
    "E = mc^2 is the equation of",
    "A car engine needs oil because",
    "The three primary colours are red,",
    "Dear Sir or Madam,\n\nI am writing to",
    "In 1969, the first man",
    "Recipe for pancakes: flour, milk,",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n",
    "import os\nimport sys\n\ndef main():\n    for path in sys.argv[1:]:\n        "
    "print(os.path.getsize(path))\n\nif __name__ ==",
    "for (int i = 0; i < n; i++) {\n    sum += a[i];\n}\nreturn",
    "let x = 5;\nlet y = x +",
    '#include <stdio.h>\n\nint main(void) {\n    printf("Hello, world!\\n");\n',
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        self.items.",
    "SELECT name, age FROM users WHERE age > 30 ORDER BY",
    "<html><head><title>Test</title></head><body><h1>Hello</h1><p>",
    "def fibonacci(n):\n    if n <= 1:\n        return n\n    return fibonacci(n-1) +",
    "import numpy as np\n\nx = np.arange(10)\nprint(x.",
    "public static void main(String[] args) {\n    System.out.",
    "if __name__ == '__main__':\n",
    "$ git commit -m 'fix' && git",
    'fn main() {\n    println!("{}",',
    "import java.util.List;\n\npublic class",
    "<?php echo 'hi'; ?>\n<?php",
    "CREATE TABLE users (id INT PRIMARY KEY,",
    "try:\n    x = int(input())\nexcept",
    "while True:\n    line = sys.stdin.",
    "console.log('hello');\nconsole.",
    "def quicksort(arr):\n    if len(arr) <= 1:\n        return arr\n    pivot =",
    "SELECT COUNT(*) FROM orders WHERE",
    "struct node {\n    int value;\n    struct node *",
    "#!/bin/bash\nfor f in *.txt; do\n  echo",
    "from dataclasses import dataclass\n\n@dataclass\nclass Point:\n    x:",
)


class Ours:
    """The llm of one package."""

    def __init__(self, package: str) -> None:
        model = bound(package).model("llm")
        self.tokenizer = Tokenizer(Library(model.asset("tokenizer.json")))
        self._pool = Pool(model.load("llm", Budget(threads=THREADS)), places=1, chunk=CHUNK)

    def logits(self, ids: Sequence[int]) -> Floats:
        """f32[vocabulary] behind `ids`."""
        place = self._pool.take(())
        place.keep(0)
        place.run(ids)
        logits = place.logits().copy()
        self._pool.give(place)
        return logits


class Llama:
    """llama.cpp."""

    def __init__(self) -> None:
        path = pull("smollm2-135m-instruct-q4_1").path("SmolLM2-135M-Instruct.Q4_1.gguf")
        self._llama = llama_cpp.Llama(str(path), n_ctx=512, n_threads=THREADS, n_threads_batch=THREADS, verbose=False)

    def logits(self, ids: Sequence[int]) -> Floats:
        """f32[vocabulary] behind `ids`."""
        self._llama.reset()
        self._llama.eval(ids)
        pointer = llama_cpp.llama_get_logits_ith(self._llama.ctx, -1)
        return np.ctypeslib.as_array(pointer, shape=(self._llama.n_vocab(),)).copy()


def main() -> None:
    """One line for each prompt, and the two distributions."""
    header()
    fast, exact, llama = Ours(sys.argv[1]), Ours(sys.argv[2]), Llama()
    found: dict[str, list[float]] = {"dpfedge fast": [], "llama.cpp": []}
    for prompt in PROMPTS:
        ids = fast.tokenizer.encode(prompt)
        wanted = exact.logits(ids)
        for name, engine in zip(found, (fast, llama), strict=True):
            found[name].append(float(np.linalg.norm(engine.logits(ids) - wanted) / np.linalg.norm(wanted)))
        print(f"  {found['dpfedge fast'][-1]:.4f}  {found['llama.cpp'][-1]:.4f}  {prompt[:60]!r}")
    for name, values in found.items():
        row = np.asarray(values)
        over = int((row > 0.06).sum())
        print(f"{name:14s} median {np.median(row):.3f}  P90 {np.quantile(row, 0.9):.3f}  max {row.max():.3f}  "
              f"over 0.06: {over} of {len(row)}")  # fmt: skip


if __name__ == "__main__":
    main()
