# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance suite, a whole pipeline and a bench on this machine's AMD GPU, and writes a report."""

from __future__ import annotations

import sys
from pathlib import Path

from dpfedge.doctor.verify import main

if __name__ == "__main__":
    sys.exit(main("rocm", Path(sys.argv[1] if len(sys.argv) > 1 else "report-rocm.md")))
