# SPDX-License-Identifier: Apache-2.0
"""The child's end: answers by themselves on standard output."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import os
from dpfedge.backend.answering import serve
def answer(question):
    print("printed")
    os.system("echo printed by another")
    return {"twice": question["n"] * 2}
serve(answer)
"""


def test_serve__nothing_but_answers_comes_out() -> None:
    """A line for a line, until the input ends; what is printed meanwhile goes nowhere."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        input='{"n": 1}\n{"n": 21}\n',
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout == '{"twice": 2}\n{"twice": 42}\n'
