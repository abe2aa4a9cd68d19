# SPDX-License-Identifier: Apache-2.0
"""The process that asks NVML, run as the program it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import dpfedge_cuda.nvml_child
import pynvml
import pytest
import standin
from dpfedge_cuda.nvml_child import APPLICATION_XIDS


def test_main__answers_until_its_input_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each line; an unknown device is an error, and the next question is answered."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.build("nvml.c", "libnvidia-ml.so.1")))
    questions = [{"ask": "health", "with": ["0000:99:00.0"]}, {"ask": "list"}]

    done = subprocess.run(
        [sys.executable, "-P", str(Path(dpfedge_cuda.nvml_child.__file__))], text=True, capture_output=True, check=True,
        input="".join(json.dumps(one) + "\n" for one in questions), timeout=60,
    )  # fmt: skip

    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["code"] == pynvml.NVML_ERROR_NOT_FOUND
    assert second["driver"] == "580.65.06"


def test_xids__of_programs() -> None:
    """Those routing is told to leave out."""
    assert {13, 31, 43, 45, 68, 69} == APPLICATION_XIDS
