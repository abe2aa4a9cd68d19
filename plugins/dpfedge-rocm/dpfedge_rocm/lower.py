# SPDX-License-Identifier: Apache-2.0
"""Lowering for MIGraphX at compile time: an ONNX graph in, one that it takes whole, with why, out.

What it lacks and ONNX's own operators can say is rewritten; the rest is refused by name. Fusions and kernels are
MIGraphX's, when it compiles on the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import onnx
from dpfedge_cpu.dequantise import dequantise
from dpfedge_cpu.lower import lower_plain

from dpfedge.backend.api import LoweredGraph, LowerRequest
from dpfedge.errors import Unsupported
from dpfedge_rocm.devices import FEATURES
from dpfedge_rocm.ops import lacking
from dpfedge_rocm.tables import spell_out

__all__ = ["lower"]

_DEQUANTISED = "int8=dequantised"
_GFX = re.compile(r"gfx[0-9]{1,4}[0-9a-f]{2}")


def lower(request: LowerRequest) -> LoweredGraph:
    """`request.onnx` for the target `request.arch`; Unsupported names what MIGraphX will never take."""
    if not _GFX.fullmatch(request.arch):
        raise Unsupported(
            "no AMD GPU is of this architecture", where=f"graph {request.name}", found=request.arch,
            allowed=f"a gfx target such as {', '.join(FEATURES)}",
        )  # fmt: skip
    lowered = lower_plain(request, partial(_rewritten, f"graph {request.name}"))
    dequantised = any(choice.startswith(_DEQUANTISED) for choice, _ in lowered.decisions)
    return replace(lowered, arithmetic="dequantised") if dequantised else lowered


def _rewritten(where: str, model: onnx.ModelProto) -> Sequence[tuple[str, str]]:
    decisions = []
    if count := dequantise(model):
        rule = "MIGraphX has no kernel that quantises activations by the row; weights become floats"
        decisions.append((f"{_DEQUANTISED}, {count} products", rule))
    if count := spell_out(model):
        rule = "MIGraphX gathers no rows of quantised tables; codes and scales are gathered apart"
        decisions.append((f"tables=spelt out, {count}×GatherBlockQuantized", rule))
    if lacks := lacking(model):
        raise Unsupported(
            "MIGraphX has no such operators, and the CPU must not run them", where=where,
            found=", ".join(f"{count}×{op}" for op, count in lacks.items()),
            remedy="place the stage on another device of the board",
        )  # fmt: skip
    return [*decisions, ("program=migraphx", "compiled on the GPU, when it is sealed or else at each load")]
