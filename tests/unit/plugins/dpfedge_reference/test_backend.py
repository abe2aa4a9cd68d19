# SPDX-License-Identifier: Apache-2.0
"""The reference as dpfedge sees it: one device anywhere, cheap to list."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dpfedge_reference import ReferenceBackend, dpfedge_register_backends

from dpfedge.backend.api import ABI, missing

PLUGIN = Path(__file__).parents[4] / "plugins" / "dpfedge-reference"


def test_register__one_backend() -> None:
    """The whole contract, at its version."""
    offered: list[Any] = []
    dpfedge_register_backends(SimpleNamespace(add=offered.append))

    (one,) = offered
    assert (one.name, one.abi, missing(one)) == ("reference", ABI, ())


def test_devices__one_on_any_machine(tmp_path: Path) -> None:
    """Also where no file tells what the machine is."""
    (device,) = ReferenceBackend().devices(tmp_path)

    assert (device.id, device.backend) == ("reference:0", "reference")
    assert 0 < ReferenceBackend().health(device).free_memory <= 1


def test_listing__imports_no_onnx() -> None:
    """Nor NumPy: an installed reference costs those nothing who do not use it."""
    code = (
        f"import sys; sys.path.insert(0, {str(PLUGIN)!r}); from pathlib import Path; import dpfedge_reference as r;"
        "r.ReferenceBackend().devices(Path('/')); sys.exit(str(sorted({'onnx', 'numpy'} & set(sys.modules)) or ''))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""
