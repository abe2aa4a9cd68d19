# SPDX-License-Identifier: Apache-2.0
"""Prove the jetson backend on its device: `python verify_on_device.py --report jetson.json [--package P]`.

It is `dpfedge doctor --backend jetson --verify`; `dpfedge_jetson/verify.py` has what only the device shows.
"""

from __future__ import annotations

import sys

from dpfedge.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["doctor", "--backend", "jetson", "--verify", *sys.argv[1:]]))
