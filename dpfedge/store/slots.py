# SPDX-License-Identifier: Apache-2.0
"""The two slots of a package name: which package is active, which one was before; one small file, replaced at once."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from dpfedge.errors import StoreError
from dpfedge.records import dataclass
from dpfedge.store.durable import replace
from dpfedge.store.small import read_json

__all__ = ["Slots", "is_id", "read_slots", "write_slots"]

_FORMAT = 1
_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Slots:
    """Ids of packages; `previous` is None until a second one was installed."""

    active: str
    previous: str | None = None

    def with_active(self, id: str) -> Slots:
        """`id` becomes active, and what was active previous."""
        return self if id == self.active else Slots(id, self.active)

    def ids(self) -> set[str]:
        """The packages that are referred to."""
        return {self.active} | ({self.previous} if self.previous else set())


def is_id(text: object) -> bool:
    """Whether this can be a package's id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def read_slots(path: Path, name: str) -> Slots | None:
    """The slots in `path`, which are those of `name`; None when there are none, StoreError when they are damaged."""
    try:
        fields = read_json(path)
        slots = Slots(fields["active"], fields["previous"])
        good = (fields["format"], fields["name"]) == (_FORMAT, name) and is_id(slots.active)
        good = good and (slots.previous is None or is_id(slots.previous))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"the slots cannot be read: {error.strerror}", where=os.fspath(path)) from error
    except (ValueError, TypeError, KeyError):
        good = False
    if not good:
        remedy = "install the package again"
        raise StoreError(f"the slots of {name!r} are damaged", where=os.fspath(path), remedy=remedy)
    return slots


def write_slots(path: Path, name: str, slots: Slots) -> None:
    """Switch, durably and at once; OSError leaves the old slots."""
    fields = {"format": _FORMAT, "name": name, "active": slots.active, "previous": slots.previous}
    replace(path, json.dumps(fields).encode())
