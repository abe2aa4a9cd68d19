# SPDX-License-Identifier: Apache-2.0
"""The options of onnxruntime's CUDA and TensorRT providers for one device, stream and graph: choices in, providers out.

TensorRT comes first where its libraries are installed; `DPFEDGE_CUDA_TENSORRT=0` leaves it out. Nothing is opened here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from dpfedge_cpu.provider import Provider, Providers, load_error

__all__ = ["CUDA", "ENGINE", "TENSORRT", "cuda_providers", "tensorrt_wanted"]

CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"
ENGINE = "engine"
"""Name of what is sealed: the graph with its TensorRT engines inside."""
_CUDA_LIBRARY, _TENSORRT_LIBRARY = (f"libonnxruntime_providers_{name}.so" for name in ("cuda", "tensorrt"))
_SWITCH = "DPFEDGE_CUDA_TENSORRT"
_REMEDY = "pip uninstall -y onnxruntime, then pip install 'onnxruntime-gpu[cuda,cudnn]'"


def cuda_providers(
    ordinal: int, stream: int, *, graphs: bool, options: Mapping[str, Any], tensorrt: Mapping[str, str] | None = None
) -> Providers:
    """For one session; `tensorrt` holds more options of that provider, None leaves it out."""
    device = {"device_id": str(ordinal), "user_compute_stream": str(stream)}
    cuda = {
        **device,
        # sums in another format than the graph's are for the package to choose
        "use_tf32": "1" if options.get("tf32") else "0",
        # exhaustive search makes the first run of each new shape slow
        "cudnn_conv_algo_search": "HEURISTIC",
        "arena_extend_strategy": "kSameAsRequested",
        "enable_cuda_graph": "1" if graphs else "0",
    }
    found = [Provider(CUDA, cuda, _CUDA_LIBRARY)]
    if tensorrt is not None:
        fp16 = {"trt_fp16_enable": "1" if options.get("fp16") else "0"}
        found.insert(0, Provider(TENSORRT, {**device, **fp16, **tensorrt}, _TENSORRT_LIBRARY))
    return Providers("cuda", found, _REMEDY)


def tensorrt_wanted(environ: Mapping[str, str], listed: list[str]) -> bool:
    """Whether TensorRT is to be used: this build has its provider, its libraries load, and nobody switched it off."""
    return environ.get(_SWITCH) != "0" and TENSORRT in listed and _loads()


@cache
def _loads() -> bool:
    return not load_error(_TENSORRT_LIBRARY)
