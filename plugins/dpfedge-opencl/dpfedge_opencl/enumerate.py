# SPDX-License-Identifier: Apache-2.0
"""A program of its own that lists the OpenCL devices of this machine as JSON, so that a driver which hangs, crashes or
starts threads does so in a process that ends.

It is run as a file, and imports nothing of dpfedge.
"""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Print `{"devices": [...]}` in the library's order, or `{"error": name, "text": ...}`.

    What a driver prints by itself goes to stderr.
    """
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ["PYOPENCL_NO_CACHE"] = "1"
    try:
        import pyopencl as cl
    except ImportError as error:
        found: dict[str, Any] = {"error": "IMPORT", "text": str(error)}
    else:
        found = _listed(cl)
    with answer:
        json.dump(found, answer)


def _listed(cl: Any) -> dict[str, Any]:
    try:
        platforms = cl.get_platforms()
        return {"devices": [_device(cl, platform, one) for platform in platforms for one in _devices(cl, platform)]}
    except cl.Error as error:
        return {"error": cl.status_code.to_string(error.code, "%d"), "text": str(error.routine)}


def _devices(cl: Any, platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.Error as error:
        if error.code == cl.status_code.DEVICE_NOT_FOUND:
            return []
        raise


def _device(cl: Any, platform: Any, device: Any) -> dict[str, Any]:
    kinds = {cl.device_type.CPU: "cpu", cl.device_type.GPU: "gpu", cl.device_type.ACCELERATOR: "accelerator"}
    return {
        "platform": platform.name.strip(),
        "platform_version": platform.version.strip(),
        "name": device.name.strip(),
        "vendor": device.vendor.strip(),
        "version": device.version.strip(),
        "driver": device.driver_version.strip(),
        "type": next((name for kind, name in kinds.items() if device.type & kind), "other"),
        "extensions": sorted(device.extensions.split()),
        "memory_bytes": int(device.global_mem_size),
        "unified": bool(device.host_unified_memory),
        "compiler": bool(device.compiler_available),
    }


if __name__ == "__main__":
    main()
