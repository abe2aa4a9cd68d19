# SPDX-License-Identifier: Apache-2.0
"""The process a cold start is measured with: opens a package, prints when it was ready (CLOCK_MONOTONIC, ns).

Arguments: PACKAGE BOARD signed|unsigned [TRUST_DIRECTORY …].
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from dpfedge.pipeline.prepare import prepare
from dpfedge.runtime import Runtime

__all__: list[str] = []

if __name__ == "__main__":
    package, board, signed, *folders = sys.argv[1:]
    trust = [Path(folder) for folder in folders] or None
    prepared = prepare(package, board=board, allow_unsigned=signed == "unsigned", trust=trust, own=True)
    with Runtime.open(prepared):
        print(time.monotonic_ns(), flush=True)
