# SPDX-License-Identifier: Apache-2.0
"""The embedding API: a package file in, spoken turns, transcripts, answers and speech out.

`AsyncRuntime` is for event loops, `Runtime` is the same for everybody else. Both start the package's stages as
processes of their own and drive the engine that `dpfedge serve` drives; neither knows of HTTP.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.pipeline.answer import Answer
    from dpfedge.pipeline.session import Session
    from dpfedge.runtime.asynchronous import AsyncRuntime
    from dpfedge.runtime.options import AudioFormat, Limits, Sampling
    from dpfedge.runtime.pipeline import AsyncPipeline, Pipeline
    from dpfedge.runtime.synchronous import Runtime

__all__ = [
    "Answer",
    "AsyncPipeline",
    "AsyncRuntime",
    "AudioFormat",
    "Limits",
    "Pipeline",
    "Runtime",
    "Sampling",
    "Session",
]

_HOMES = {
    "Answer": "dpfedge.pipeline.answer",
    "AsyncPipeline": "dpfedge.runtime.pipeline",
    "AsyncRuntime": "dpfedge.runtime.asynchronous",
    "AudioFormat": "dpfedge.runtime.options",
    "Limits": "dpfedge.runtime.options",
    "Pipeline": "dpfedge.runtime.pipeline",
    "Runtime": "dpfedge.runtime.synchronous",
    "Sampling": "dpfedge.runtime.options",
    "Session": "dpfedge.pipeline.session",
}


def __getattr__(name: str) -> Any:
    # imported when asked for: `Runtime.open` starts the stages' parent first and imports the rest beside its warm-up
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
