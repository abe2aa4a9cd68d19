# SPDX-License-Identifier: Apache-2.0
"""Prove the rocm backend on its device: `python verify_on_device.py --report rocm.json [--package P]`.

It is `dpfedge doctor --backend rocm --verify`; `dpfedge_rocm/verify.py` has what only the device shows.
"""

from __future__ import annotations

import sys

from dpfedge.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["doctor", "--backend", "rocm", "--verify", *sys.argv[1:]]))
