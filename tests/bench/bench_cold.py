# SPDX-License-Identifier: Apache-2.0
"""Cold process → ready for a turn, beside the plain script that loads the same original files one after the other.

Both end with every model run once. Ours once from the file, every byte of which is compared with its digest beside the
start, and once installed in a store, where that was done before. Usage: python tests/bench/bench_cold.py
build/voice.dpfbin [rounds]     (needs llama-cpp-python; DPFEDGE_TRUST names who is trusted)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from peers import header, rounds, show

from dpfedge.bench.peer import PlainPeer, plain_setup
from dpfedge.bench.scenarios import cold_start
from dpfedge.package import open_package


def main() -> None:
    """One table: loaded, and ready."""
    package, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    header()
    setup = plain_setup(open_package(package, check="fast").manifest.pipeline, threads=2)
    loaded: list[float] = []

    def ours(what: Path) -> float:
        return cold_start(what, "auto", 1, lambda text: None)[0].samples[0] / 1e3

    def plain() -> float:
        with PlainPeer(setup) as peer:
            loaded.append(peer.load_ms / 1e3)
            return peer.ready_ms / 1e3

    with tempfile.TemporaryDirectory() as store:
        os.environ["DPFEDGE_STORE"] = store
        subprocess.run([sys.executable, "-m", "dpfedge", "install", str(package)], check=True)
        name = Path(open_package(package, check="fast").manifest.name)
        engines = {
            "installed, ready": lambda: ours(name), "from the file, ready": lambda: ours(package),
            "plain script, ready": plain,
        }  # fmt: skip
        found = rounds(count, engines)
    for title in ("installed, ready", "from the file, ready"):
        show("cold process", {**found, "plain script, only loaded": loaded[1:]}, title)


if __name__ == "__main__":
    main()
