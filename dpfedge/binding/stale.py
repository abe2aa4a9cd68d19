# SPDX-License-Identifier: Apache-2.0
"""What was built for one machine against the machine that is here: two sets of named facts in, each difference out.

It reads no file and asks no backend. A difference always refuses: what is stale is named, never used and never rebuilt
while a package is served.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dpfedge.records import dataclass

__all__ = ["REMEDY", "Stale", "differences"]

REMEDY = "run `dpfedge seal`"


@dataclass(frozen=True, slots=True)
class Stale:
    """One fact that differs: `what` was built with `wanted`, and `found` is here."""

    what: str
    """For example `baked prefix of llm` or `seal voice.dpfbin.dpfseal`."""
    field: str
    wanted: str
    found: str
    remedy: str = REMEDY

    def __str__(self) -> str:
        return f"{self.what}: refused: {self.field}: wanted {self.wanted}; found {self.found}; {self.remedy}"


def differences(what: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> Iterator[Stale]:
    """Each name whose values differ, sorted by name; a name that one side lacks differs too."""
    for field in sorted(wanted.keys() | found.keys()):
        if wanted.get(field) != found.get(field):
            yield Stale(what, field, wanted.get(field, "nothing"), found.get(field, "nothing"))
