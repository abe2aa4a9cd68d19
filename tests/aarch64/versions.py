# SPDX-License-Identifier: Apache-2.0
"""A lock file and a Python version in, `name==version` for aarch64 Linux out; hashes of files are left behind."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from packaging.requirements import Requirement


def pins(text: str, python: str) -> list[str]:
    """What the lock file pins for this Python."""
    place = {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": "aarch64"}
    lines = re.findall(r"^([A-Za-z0-9].*?==[^\\]*?) *\\?$", text, re.MULTILINE)
    found = [Requirement(line) for line in lines]
    return [f"{r.name}{r.specifier}" for r in found if r.marker is None or r.marker.evaluate(place)]


if __name__ == "__main__":
    print("\n".join(pins(Path(sys.argv[1]).read_text(), sys.argv[2])))
