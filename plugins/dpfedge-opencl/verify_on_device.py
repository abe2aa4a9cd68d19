# SPDX-License-Identifier: Apache-2.0
"""Prove the OpenCL backend on a machine with a device: `python verify_on_device.py --report mali.json [--package P]`.

It is `dpfedge doctor --backend opencl --verify`; `dpfedge_opencl/verify.py` has what only a driver shows.
"""

from __future__ import annotations

import sys

from dpfedge.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["doctor", "--backend", "opencl", "--verify", *sys.argv[1:]]))
