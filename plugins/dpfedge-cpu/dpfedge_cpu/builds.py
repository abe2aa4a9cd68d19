# SPDX-License-Identifier: Apache-2.0
"""Which build of onnxruntime is installed: names of distributions in, the first that is there with its version out.

It imports neither onnxruntime nor NumPy: what a seal is bound to is asked for before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

__all__ = ["installed_build"]


def installed_build(names: Sequence[str]) -> str:
    """`onnxruntime-gpu 1.31.1`, or `not installed`."""
    for name in names:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return "not installed"
