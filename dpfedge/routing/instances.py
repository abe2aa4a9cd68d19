# SPDX-License-Identifier: Apache-2.0
"""Instances: names and weights in, from a file or from capacities, checked; it holds no table and no health."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfedge import _core, limits
from dpfedge.errors import UsageError

__all__ = ["INSTANCES_MAX", "NAME_MAX_BYTES", "WEIGHT_MAX", "Instance", "parse_instances", "read_instances", "weigh"]

INSTANCES_MAX = 65535
NAME_MAX_BYTES = 256
WEIGHT_MAX = 65535

_KEYS = {"name", "weight", "healthy"}
_SCALE = 1000  # the weight of the largest of capacities: shares are right to a thousandth


@dataclass(frozen=True, slots=True)
class Instance:
    """A share of a device that can serve requests; UsageError when name or weight are out of range."""

    name: str
    """1 to 256 bytes of UTF-8, for example `10.0.0.1:8000`: all that the table knows of it."""
    weight: int = 1
    """0 to 65535, relative to the others'; 0 takes no part."""
    healthy: bool = True

    def __post_init__(self) -> None:
        _core.route_seed(self.encoded)
        if type(self.weight) is not int or not 0 <= self.weight <= WEIGHT_MAX:
            raise UsageError(
                "the weight is out of range", where=f"instance {self.name}", found=repr(self.weight),
                allowed=f"a whole number of 0..{WEIGHT_MAX}",
            )  # fmt: skip

    @property
    def encoded(self) -> bytes:
        """The name as bytes; UsageError when it is no UTF-8."""
        try:
            return self.name.encode()
        except UnicodeEncodeError as error:
            raise UsageError("the name cannot be written as UTF-8", where="instance", found=ascii(self.name)) from error

    @property
    def seed(self) -> int:
        """The seed of its hashes."""
        return _core.route_seed(self.encoded)

    @property
    def effective(self) -> int:
        """The weight while it is healthy, else 0."""
        return self.weight if self.healthy else 0

    @property
    def address(self) -> tuple[bytes, int]:
        """Four bytes of IPv4 and a port when the name is `A.B.C.D:PORT`, else zeros: what the kernel can route to."""
        host, _, port = self.name.rpartition(":")
        try:
            place = ipaddress.IPv4Address(host).packed, int(port)
        except ValueError:
            return bytes(4), 0
        return place if 0 <= place[1] < 1 << 16 else (bytes(4), 0)


def read_instances(path: Path) -> list[Instance]:
    """The instances of a JSON file: a list of `{"name": …, "weight": …}`, 1 without a weight.

    UsageError names the file and the place: no JSON, no list, an unknown key, a name that two have.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limits.ROUTE_FILE_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError("the file cannot be read", where=str(path), found=error.strerror) from error
    if len(data) > limits.ROUTE_FILE_MAX_BYTES:
        raise UsageError("the file is too long", where=str(path), allowed=f"{limits.ROUTE_FILE_MAX_BYTES} bytes")
    try:
        rows = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError("the file is no JSON", where=str(path), found=str(error)) from error
    return parse_instances(rows, str(path))


def parse_instances(rows: Any, where: str) -> list[Instance]:
    """The instances of parsed JSON; `where` begins the places of errors."""
    if not isinstance(rows, list):
        raise UsageError(
            "instances are a list", where=where, found=_kind(rows), allowed='[{"name": …, "weight": …}, …]'
        )
    if len(rows) > INSTANCES_MAX:
        raise UsageError("too many instances", where=where, found=len(rows), allowed=INSTANCES_MAX)
    found = [_instance(row, f"{where}[{place}]") for place, row in enumerate(rows)]
    _refuse_twins(found, where)
    return found


def _instance(row: Any, where: str) -> Instance:
    if not isinstance(row, dict):
        raise UsageError("an instance is an object", where=where, found=_kind(row), allowed='{"name": …, "weight": …}')
    if odd := sorted(row.keys() - _KEYS):
        raise UsageError("unknown key", where=where, found=", ".join(odd), allowed=", ".join(sorted(_KEYS)))
    if not isinstance(row.get("name"), str):
        raise UsageError("an instance has a name", where=where, found=_kind(row.get("name")), allowed="text")
    if not isinstance(row.get("healthy", True), bool):
        raise UsageError("healthy is true or false", where=where, found=_kind(row["healthy"]))
    try:
        return Instance(row["name"], row.get("weight", 1), row.get("healthy", True))
    except UsageError as error:
        raise error.at(f"{where}: {error.where}") from None


def _refuse_twins(instances: Sequence[Instance], where: str) -> None:
    places: dict[int, int] = {}
    for place, instance in enumerate(instances):
        first = places.setdefault(instance.seed, place)
        if first != place:
            raise UsageError(
                "two instances have one name", where=f"{where}[{place}]",
                found=f"{instance.name!r}, as {where}[{first}]", remedy="names are unique",
            )  # fmt: skip


def weigh(capacities: Mapping[str, float]) -> dict[str, int]:
    """Weights in proportion to capacities, such as tokens per second or free bytes: 1000 for the largest, at least 1.

    A capacity of 0 is a weight of 0; UsageError for one that is negative or no number.
    """
    for name, capacity in capacities.items():
        if not 0 <= capacity < float("inf"):
            raise UsageError("a capacity is a number from 0 on", where=f"instance {name}", found=capacity)
    largest = max(capacities.values(), default=0)
    return {
        name: max(1, round(capacity * _SCALE / largest)) if capacity else 0 for name, capacity in capacities.items()
    }


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")
