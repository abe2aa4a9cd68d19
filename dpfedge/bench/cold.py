# SPDX-License-Identifier: Apache-2.0
"""The process a cold start is measured with: opens a package, prints when it was ready (CLOCK_MONOTONIC, ns)."""

from __future__ import annotations

import sys
import time

from dpfedge.runtime import Runtime

__all__: list[str] = []

if __name__ == "__main__":
    with Runtime.open(sys.argv[1], board=sys.argv[2]):
        print(time.monotonic_ns(), flush=True)
