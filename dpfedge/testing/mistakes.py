# SPDX-License-Identifier: Apache-2.0
"""What a caller can do wrong: a loaded `affine(2)` in, acts that a backend must refuse by a BackendError out.

How they are judged is not known here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpfedge.backend.api import Array, Executable
from dpfedge.errors import BackendError
from dpfedge.testing.models import WIDTH, rows

__all__ = ["mistakes", "refusal"]


def mistakes(executable: Executable, short: Array, long: Array, fixed: Array) -> dict[str, Callable[[], object]]:
    """What is wrong → the act. The arrays are f32[1, WIDTH], f32[4, WIDTH] and f32[2, WIDTH], the memory of outputs."""
    call, x = executable.bind(), rows(2)

    def into(y: Array) -> None:
        to = executable.bind()
        to.set_input("x", x)
        to.set_output("y", y)
        to.run()

    fixed.flags.writeable = False
    return {
        "another dtype": lambda: call.set_input("x", x.astype(np.float64)),
        "memory with holes": lambda: call.set_input("x", rows(4)[::2]),
        "another dtype for an output": lambda: call.set_output("y", np.zeros((2, WIDTH), np.int32)),
        "another shape for an output": lambda: into(short),
        "an output with holes": lambda: into(long[::2]),
        "an output that is read-only": lambda: into(fixed),
        "no such input": lambda: call.set_input("q", x),
        "no such output": lambda: call.set_output("q", x),
        "no such link": lambda: call.link("y", "q"),
        "a missing input": lambda: executable.bind().run(),
        "a missing feed": lambda: executable.run({}),
        "another shape": lambda: executable.run({"x": rows(2, WIDTH - 1)}),
        "another rank": lambda: executable.run({"x": x.reshape(-1)}),
        "an output before any run": lambda: executable.bind().output("y"),
    }


def refusal(act: Callable[[], object]) -> str:
    """What the BackendError said that `act` raised; nothing where it raised none. Other errors pass through."""
    try:
        act()
    except BackendError as error:
        return str(error)
    return ""
