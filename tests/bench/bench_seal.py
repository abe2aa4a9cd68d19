# SPDX-License-Identifier: Apache-2.0
"""What a seal does to each demo model: copies of weights a process makes, time to load, and the speed it runs at after.

Copies are the private memory that loading adds, less what it adds when nothing is packed (the graphs' objects). Runs of
the language model are compared in one process each, plain and sealed interleaved, one thread.

Usage: python tests/bench/bench_seal.py build/voice.dpfbin [rounds]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from peers import header, rounds, show

from dpfedge.backend.api import Budget
from dpfedge.binding import bind_here
from dpfedge.package import open_package
from dpfedge.stage.llm.cache import Place

HOLDER = Path(__file__).parents[1] / "e2e" / "made" / "made_holder.py"
PROMPT, TOKENS = 128, 48


def held(package: Path, model: str, form: str) -> dict[str, Any]:
    """Bytes that loading adds to a fresh process, and the weights' bytes."""
    done = subprocess.run(
        [sys.executable, str(HOLDER), str(package), model, form], input="", capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    return found


def copies(package: Path) -> None:
    """One row for each model."""
    print(f"\n{'model':10s}{'weights MB':>12s}{'copies MB':>12s}{'sealed MB':>12s}{'sealed / weights':>18s}")
    for model in bind_here(open_package(package, check="fast")).models:
        plain, sealed, objects = (held(package, model, form) for form in ("plain", "packed", "unpacked"))
        before, after = (max(0, row["grown"] - objects["grown"]) for row in (plain, sealed))
        share = after / plain["weights"]
        print(f"{model:10s}{plain['weights'] / 1e6:12.1f}{before / 1e6:12.2f}{after / 1e6:12.2f}{share:18.2%}")


class Llm:
    """The language model, loaded plain or sealed in this process."""

    def __init__(self, package: Path, *, sidecar: bool) -> None:
        bound = bind_here(open_package(package, check="fast"), sidecar=sidecar)
        self._place = Place(bound.model("llm").load("llm", Budget()), PROMPT)
        self._prompt = np.random.default_rng(0).integers(100, 40000, PROMPT).tolist()

    def prefill(self) -> float:
        """Seconds of the prompt."""
        self._place.keep(0)
        started = time.perf_counter()
        self._place.run(self._prompt)
        return time.perf_counter() - started

    def decode(self) -> float:
        """Seconds of the answer."""
        self.prefill()
        started = time.perf_counter()
        for token in range(TOKENS):
            self._place.run((token + 5,))
        return time.perf_counter() - started


def main() -> None:
    """A table of memory and two of speed."""
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    header()
    with tempfile.TemporaryDirectory(prefix="dpfedge-bench-") as name:
        package = Path(name, "voice.dpfbin")
        shutil.copy(sys.argv[1], package)
        command = [sys.executable, "-m", "dpfedge", "seal", str(package)]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
        copies(package)
        sealed, plain = Llm(package, sidecar=True), Llm(package, sidecar=False)
        show("prefill of 128 tokens", rounds(count, {"sealed": sealed.prefill, "plain": plain.prefill}), "sealed")
        show("48 tokens after it", rounds(count, {"sealed": sealed.decode, "plain": plain.decode}), "sealed")


if __name__ == "__main__":
    main()
