# SPDX-License-Identifier: Apache-2.0
"""What of the demo package is read before anything runs: its manifest and graphs, and none of its weights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dpfedge.binding import bind_here
from dpfedge.package import open_package
from dpfedge.package.residency import Resident, residency

_AROUND = 2 << 20  # the kernel maps up to a huge page around a page that is read, when the file lies in memory so


def test_reading__pages_of_graphs_only(voice_package: Path, tmp_path: Path) -> None:
    """After opening, binding and reading every graph no more is resident than header, manifest and graphs."""
    code = (
        "import sys; from pathlib import Path; from dpfedge.binding import bind_here; import test_reading as t;"
        "t.read(Path(sys.argv[1]))"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code, str(voice_package)], capture_output=True, text=True, env=environ)

    assert done.returncode == 0, done.stderr


def read(path: Path) -> None:
    """In a process of its own: pages that other tests mapped are theirs."""
    package = open_package(path, check="fast")
    bound = bind_here(package)
    assert sum(item.rss for item in residency(os.getpid(), package).values()) == 0, "opening and binding read a section"
    graphs = [bound.model(name).graph(graph) for name in bound.models for graph in bound.model(name).graphs]
    sizes = [len(bytes(graph.code)) for graph in graphs]
    found = residency(os.getpid(), package)

    allowed = package.header.header_bytes + package.header.manifest_bytes + sum(sizes)
    resident = sum(item.rss for item in found.values())
    assert 8 * _AROUND * len(sizes) < package.nbytes, "the package is too small for this test"
    assert resident <= allowed + _AROUND * len(sizes), (resident, allowed)
    assert found.get("weights", Resident()).rss <= _AROUND * len(sizes)
