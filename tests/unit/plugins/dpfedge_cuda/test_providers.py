# SPDX-License-Identifier: Apache-2.0
"""Options of the CUDA and TensorRT providers."""

from __future__ import annotations

import pytest
from dpfedge_cuda import providers
from dpfedge_cuda.providers import CUDA, TENSORRT, cuda_providers, tensorrt_wanted


def test_cuda_providers__one_device_and_stream() -> None:
    """Graphs and other number formats only when asked for; everything is text, as onnxruntime wants it."""
    (cuda,) = cuda_providers(1, 4096, graphs=True, options={"tf32": True}).providers
    assert cuda.name == CUDA
    assert (cuda.options["device_id"], cuda.options["user_compute_stream"]) == ("1", "4096")
    assert (cuda.options["enable_cuda_graph"], cuda.options["use_tf32"]) == ("1", "1")
    (plain,) = cuda_providers(0, 1, graphs=False, options={}).providers
    assert (plain.options["enable_cuda_graph"], plain.options["use_tf32"]) == ("0", "0")
    assert all(isinstance(value, str) for value in plain.options.values())


def test_cuda_providers__tensorrt_first() -> None:
    """What it leaves, CUDA takes."""
    both = cuda_providers(0, 1, graphs=False, options={"fp16": True}, tensorrt={"trt_timing_cache_enable": "1"})
    assert [one.name for one in both.providers] == [TENSORRT, CUDA]
    assert both.providers[0].options["trt_fp16_enable"] == "1"
    assert both.providers[0].options["trt_timing_cache_enable"] == "1"


def test_tensorrt_wanted__where_its_libraries_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed in the build is not enough: the wheel lists it without libnvinfer."""
    providers._loads.cache_clear()
    monkeypatch.setattr(providers, "load_error", lambda library: "libnvinfer.so.10: cannot open shared object file")
    assert not tensorrt_wanted({}, [TENSORRT, CUDA])
    providers._loads.cache_clear()
    monkeypatch.setattr(providers, "load_error", lambda library: "")
    assert tensorrt_wanted({}, [TENSORRT, CUDA])
    assert not tensorrt_wanted({}, [CUDA])
    assert not tensorrt_wanted({"DPFEDGE_CUDA_TENSORRT": "0"}, [TENSORRT, CUDA])
    providers._loads.cache_clear()
