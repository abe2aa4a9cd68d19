# SPDX-License-Identifier: Apache-2.0
"""Lowering for Orin's and Thor's GPU and for a DLA: an ONNX graph in; one that the device runs whole, or why not, out.

A GPU gets what `dpfedge-cuda` lowers for its target. A DLA gets a graph of which it may run every node, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx
from dpfedge_cpu.lower import lower_plain

from dpfedge.backend.api import LoweredGraph, LowerRequest
from dpfedge.errors import Unsupported
from dpfedge_jetson.devices import ARCHS, DLA_ARCHS

__all__ = ["lower"]

_SHOWN = 8


def lower(request: LowerRequest) -> LoweredGraph:
    """`request.onnx` for `sm_87`, `sm_110` or `nvdla2`."""
    if request.arch in DLA_ARCHS:
        return replace(lower_plain(request, lambda model: _checked(request, model)), arithmetic="half")
    if request.arch not in ARCHS:
        raise Unsupported(
            "no device of this backend", where=f"graph {request.name}", found=request.arch,
            allowed=", ".join([*ARCHS, *DLA_ARCHS]),
        )  # fmt: skip
    from dpfedge_cuda.lower import lower as lower_for_gpu

    return lower_for_gpu(request)


def _checked(request: LowerRequest, model: onnx.ModelProto) -> Sequence[tuple[str, str]]:
    from dpfedge_jetson.dla import refusals

    if reasons := list(refusals(model)):
        more = f", and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        raise Unsupported(
            "a DLA does not run this graph whole, and the GPU must not run the rest unasked",
            where=f"graph {request.name}", found="; ".join(reasons[:_SHOWN]) + more,
            allowed="layers of TensorRT's DLA list, with fixed sizes",
            remedy="place the stage on the GPU, or divide the model",
        )  # fmt: skip
    return [("engine=dla", f"{len(model.graph.node)} nodes, all within the limits of {request.arch}; f16")]
