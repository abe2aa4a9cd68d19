# SPDX-License-Identifier: Apache-2.0
"""The child's end of `telling.py`: a function of questions in, lines of JSON answered until the input ends, out.

It needs the standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["serve"]


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer each line of standard input; call it before a vendor's library is loaded.

    From then on what is printed to standard output, by C code too, goes nowhere: the answers have it to themselves.
    """
    own = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    with os.fdopen(own, "w", encoding="utf-8") as out:
        for line in sys.stdin:
            out.write(json.dumps(answer(json.loads(line))) + "\n")
            out.flush()
