# SPDX-License-Identifier: Apache-2.0
"""dpfedge: one file holds a model pipeline; this runtime binds it to the board and links its stages without copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.runtime import AsyncPipeline, AsyncRuntime, AudioFormat, Limits, Pipeline, Runtime, Sampling

__all__ = ["AsyncPipeline", "AsyncRuntime", "AudioFormat", "Limits", "Pipeline", "Runtime", "Sampling", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # the runtime is imported when it is asked for: `dpfedge bind` and the stage processes need none of it
    if name in __all__:
        from dpfedge import runtime

        return getattr(runtime, name)
    raise AttributeError(f"module 'dpfedge' has no attribute {name!r}")
