# SPDX-License-Identifier: Apache-2.0
"""PCIe errors that the kernel counts for a device (AER): its `aer_dev_*` files in, totals since the start out.

A device without them, as every virtual one, has None; that is normal and no error.
"""

from __future__ import annotations

from dpfedge.hardware.source.root import Root, whole
from dpfedge.records import dataclass

__all__ = ["PciErrors", "read_errors"]

_LINES_MAX = 64  # the kernel writes one line for each of at most 26 kinds, and the total


@dataclass(frozen=True, slots=True)
class PciErrors:
    """Counts since the machine started."""

    corrected: int
    nonfatal: int
    """A transfer failed, the link did not."""
    fatal: int


def read_errors(root: Root, address: str) -> PciErrors | None:
    """The counts of the function at `address` (`0000:01:00.0`); None where the kernel counts none."""
    files = ("correctable", "nonfatal", "fatal")
    counts = [_total(root.text(f"sys/bus/pci/devices/{address}/aer_dev_{name}")) for name in files]
    corrected, nonfatal, fatal = (count or 0 for count in counts)
    return None if all(count is None for count in counts) else PciErrors(corrected, nonfatal, fatal)


def _total(text: str | None) -> int | None:
    """The line `TOTAL_ERR_… n`, else the sum: the number is a line's last word, whatever a kind is called."""
    if text is None:
        return None
    rows = [line.rsplit(maxsplit=1) for line in text.splitlines()[:_LINES_MAX]]
    counts = {row[0]: whole(row[1]) or 0 for row in rows if len(row) == 2}
    totals = [count for kind, count in counts.items() if kind.startswith("TOTAL_ERR")]
    return totals[0] if totals else sum(counts.values())
