# SPDX-License-Identifier: Apache-2.0
"""Mappings and sequences that know where they were written."""

from __future__ import annotations

import subprocess
import sys

from dpfedge.config.places import Items, Section


def test_section__knows_the_line_of_each_key() -> None:
    """Of one it has not, and of itself, the first line."""
    section = Section("a.yaml", 3)
    section["x"], section.lines["x"] = 1, 5

    assert section == {"x": 1}
    assert (section.where("x"), section.where("y"), section.where()) == ("a.yaml:5", "a.yaml:3", "a.yaml:3")


def test_items__know_the_line_of_each_item() -> None:
    """And their own."""
    items = Items("a.yaml", 3)
    items.append("x")
    items.lines.append(4)

    assert items == ["x"]
    assert (items.where(0), items.where()) == ("a.yaml:4", "a.yaml:3")


def test_check__needs_no_yaml_reader() -> None:
    """Every start checks a pipeline; only who reads a file pays for a reader."""
    code = "import sys; from dpfedge.config import check, duration_ms, nearest; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
