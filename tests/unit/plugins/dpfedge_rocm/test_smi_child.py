# SPDX-License-Identifier: Apache-2.0
"""The process that asks AMD SMI, run as the program it is; `test_smi.py` has what it tells and how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import dpfedge_rocm.smi_child
import pytest
import standin

ADDRESS = "0000:26:00.0"


@pytest.mark.skipif(find_spec("amdsmi") is None, reason="the package amdsmi is not installed")
def test_main__answers_until_its_input_ends() -> None:
    """A line for each line, in order: a GPU that is not shown is no end."""
    folder = standin.build("amdsmi.c", "libamd_smi.so")
    environ = {**os.environ, "LD_LIBRARY_PATH": str(folder), "STANDIN_GPUS": ADDRESS, "STANDIN": "load=print"}
    for name in ("ROCM_HOME", "ROCM_PATH"):
        environ.pop(name, None)
    questions = [{"ask": "state", "with": ["0000:99:00.0"]}, {"ask": "state", "with": [ADDRESS]}]

    done = subprocess.run(
        [sys.executable, "-P", str(Path(dpfedge_rocm.smi_child.__file__))], env=environ, text=True, check=True,
        capture_output=True, input="".join(json.dumps(one) + "\n" for one in questions), timeout=60,
    )  # fmt: skip

    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["kind"], first["error"]) == ("hidden", "it shows no such GPU")
    assert second["busy"] == 37
