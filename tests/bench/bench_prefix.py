# SPDX-License-Identifier: Apache-2.0
"""Time to the first token of a first turn, right after the stage is ready: with the baked opening and without.

Each measurement is a new stage on the same package, warm and not settled, which is what the first person who speaks
meets; the third engine has settled before (the second turn of today). Interleaved, one thread.

Usage: python tests/bench/bench_prefix.py build/voice.dpfbin [rounds]     (a package compiled with its opening baked)
"""

from __future__ import annotations

import sys
import time

from peers import bound, header, rounds, show

from dpfedge.backend.api import Budget
from dpfedge.seal.bake import openings
from dpfedge.stage.llm import LlmStage
from dpfedge.stage.llm.cache import Prefix
from dpfedge.stage.llm.engine import prefill

QUESTION = {"role": "user", "content": "What is the capital of France?"}


def first_token(stage: LlmStage) -> float:
    """Seconds from the question to the token the answer begins with, as a chat's request computes it."""
    parts = stage._parts
    messages = [*parts.opening, QUESTION]
    started = time.perf_counter()
    tokens = parts.prompts.tokens(messages)
    place = parts.pool.take(tokens)
    if parts.pool.prefix is None:
        for _ in prefill(place, parts.shared, parts.settings.chunk_tokens, len(parts.shared)):
            pass
        place.keep(len(parts.shared))
        parts.pool.prefix = Prefix.of(place)
    for _ in prefill(place, tokens, parts.settings.chunk_tokens, parts.prompts.newest(messages, tokens)):
        pass
    place.logits().argmax()
    seconds = time.perf_counter() - started
    parts.pool.give(place)
    return seconds


def main() -> None:
    """One table."""
    package, count = bound(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    header()
    settings = openings(package.package.manifest.pipeline)["llm"]

    def stage(*, baked: bool, settled: bool = False) -> LlmStage:
        made = LlmStage(package.model("llm"), settings, Budget(threads=1))
        if baked and made._parts.pool.prefix is None:
            sys.exit(f"{sys.argv[1]} has no baked opening that fits here: {made.facts()['prefix']}")
        if not baked:
            made._parts.pool.prefix = None
        made.warm()
        for _ in made.settle() if settled else ():
            pass
        return made

    tokens = len(stage(baked=True)._parts.shared)
    found = rounds(
        count,
        {
            "baked": lambda: first_token(stage(baked=True)),
            "not baked": lambda: first_token(stage(baked=False)),
            "not baked, settled before": lambda: first_token(stage(baked=False, settled=True)),
        },
    )
    show(f"first token of a first turn, opening of {tokens} tokens, one thread", found, "baked")


if __name__ == "__main__":
    main()
