# SPDX-License-Identifier: Apache-2.0
"""What a kernel computes behind its own result before it stores it: bias, activation, residual; steps in, text out.

A node's attribute `epilogue` is `{"steps": […], "kinds": […]}`. Operand 0 of the steps is the accumulator, the next
ones are the last `len(kinds)` inputs of the node: `channel` has one value per channel, `same` the output's shape,
`scalar` one value. It loads no operand: where they lie is the kernel's affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpfedge_opencl.ops.text import compute, statements

__all__ = ["code", "kinds"]


def kinds(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of a node's extra inputs, in the order of its last inputs; nothing without an epilogue."""
    return tuple(attrs.get("epilogue", {}).get("kinds", ()))


def code(
    epilogue: Mapping[str, Any], acc: str, operands: Sequence[str], width: int = 1, prefix: str = "e"
) -> tuple[str, str, str]:
    """(helper functions, statements, result) over variables of `float` or `float<width>`.

    Helpers stand once in a source. `prefix` begins the names that are declared; use another one where the text
    stands twice in one scope.
    """
    dtypes = ["f32"] * (1 + len(operands))
    lines, names = statements(epilogue["steps"], [acc, *operands], dtypes, width, prefix)
    text = "\n".join(lines)
    return compute(width, text), text, names[-1]
