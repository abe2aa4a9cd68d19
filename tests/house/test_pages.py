# SPDX-License-Identifier: Apache-2.0
"""Nobody assumes pages of 4 KiB: a constant that is called a page and is a number belongs to a layout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYOUTS: Mapping[str, str] = {
    "dpfedge/package/weights.py": "where large tensors begin in a package; readers round down to pages of their own",
    "dpfedge/store/sample.py": "how much of a file is looked at in one place; kept in the store's records",
    "firmware_bridge/firmware/host/dsp.h": "where the samples begin in the converter's file",
    "firmware_bridge/src/route.c": "where the table begins in a map that machines of other page sizes read",
}
"""File → what its number is, where it is no page of this machine."""
PAGE = re.compile(r"\b\w*PAGE\w*\s*(?::[^=\n]*)?=\s*(?:4096|0x1000|1 ?<< ?12|4 ?<< ?10)\b")


def test_pages__are_asked_for() -> None:
    """Python asks mmap.PAGESIZE or sysconf, C is told (`dpf_arena_spec.page`)."""
    bridge = ROOT / "firmware_bridge"
    files = [*(ROOT / "dpfedge").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]
    folders = ("src", "python", "client", "include", "firmware")
    files += [path for name in folders for path in (bridge / name).rglob("*.[ch]")]
    found = {str(path.relative_to(ROOT)) for path in files if PAGE.search(path.read_text("utf-8"))}

    assert found == set(LAYOUTS)
