# SPDX-License-Identifier: Apache-2.0
"""Prove the CUDA backend on a machine with a GPU: `python verify_on_device.py --report cuda.json [--package P]`.

It is `dpfedge doctor --backend cuda --verify`; `dpfedge_cuda/verify.py` has what only a GPU shows.
"""

from __future__ import annotations

import sys

from dpfedge.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["doctor", "--backend", "cuda", "--verify", *sys.argv[1:]]))
