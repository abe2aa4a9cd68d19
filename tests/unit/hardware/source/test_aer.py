# SPDX-License-Identifier: Apache-2.0
"""PCIe error counters, from files of real machines and from what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.hardware.source.aer import PciErrors, read_errors
from dpfedge.hardware.source.root import Root

SHORT = (
    "RxErr 3\nBadTLP 0\nBadDLLP 1\nRollover 0\nTimeout 0\nNonFatalErr 0\nCorrIntErr 0\nHeaderOF 0\nTOTAL_ERR_COR 4\n"
)
LONG = "Undefined 0\nData Link Protocol 1\nSurprise Down Error 1\nTOTAL_ERR_FATAL 2\n"
PLACE = "0000:01:00.0"


def _lay(root: Path, **files: str) -> Root:
    folder = root / "sys/bus/pci/devices" / PLACE
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / f"aer_dev_{name}").write_text(text)
    return Root(root)


def test_errors__totals_of_each_kind(tmp_path: Path) -> None:
    """Short names of a current kernel and long ones of its documentation."""
    root = _lay(tmp_path, correctable=SHORT, fatal=LONG, nonfatal="TLP 5\nECRC 2\n")
    assert read_errors(root, PLACE) == PciErrors(corrected=4, nonfatal=7, fatal=2)


def test_errors__of_a_device_that_has_none(tmp_path: Path) -> None:
    """No file is no count; one file is enough for some."""
    assert read_errors(_lay(tmp_path), PLACE) is None
    assert read_errors(Root(tmp_path), "0000:02:00.0") is None


@pytest.mark.parametrize("text", ["", "\n\n", "TOTAL_ERR_COR", "TOTAL_ERR_COR x", "x" * 5000, "a b\n" * 500])
def test_errors__text_that_is_none(tmp_path: Path, text: str) -> None:
    """Counts nothing."""
    assert read_errors(_lay(tmp_path, correctable=text), PLACE) == PciErrors(0, 0, 0)
