# SPDX-License-Identifier: Apache-2.0
"""The program that lists devices; drivers that fail in it are in `test_bad_driver.py`."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

from dpfedge_opencl import enumerate as program
from made_plans import a_device

PATH = Path(program.__file__)


def test_program__lists_what_devices_are_made_of() -> None:
    """JSON with every fact of each device."""
    device = a_device()
    done = subprocess.run([sys.executable, "-P", str(PATH)], capture_output=True, timeout=120, check=True)
    (first, *_) = json.loads(done.stdout)["devices"]
    assert first["name"] == device.name
    assert set(device.facts) - {"in_place", "priorities"} <= set(first)


def test_program__where_a_driver_prints(tmp_path: Path) -> None:
    """Into the stream of the answer, when it is loaded: that is on stderr, and the answer whole."""
    (tmp_path / "pyopencl.py").write_text("import os\nos.write(1, b'driver: hello')\nraise ImportError('gone')\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-P", str(PATH)], capture_output=True, timeout=120, check=True, env=environ)
    assert json.loads(done.stdout) == {"error": "IMPORT", "text": "gone"}
    assert done.stderr == b"driver: hello"


def test_program__imports_nothing_of_dpfedge() -> None:
    """It runs as a file, where this distribution's folder is not on the path."""
    tree = ast.parse(PATH.read_text())
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not [name for name in names if name and name.startswith("dpfedge")]
