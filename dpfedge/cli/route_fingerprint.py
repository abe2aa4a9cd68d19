# SPDX-License-Identifier: Apache-2.0
"""`dpfedge route fingerprint`: a machine in, its hardware fingerprint, as text or JSON, out; it hashes nothing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.routing.fingerprint import Fingerprint

__all__ = ["EXAMPLES", "add_action", "fingerprint"]

EXAMPLES = """\
  dpfedge route fingerprint                                 what a fleet node may know of this machine today"""


def add_action(actions: Any) -> None:
    """Declare the action and its options."""
    one = actions.add_parser("fingerprint", help="the hardware fingerprint, and the fields it is made of")
    one.add_argument(
        "--sysroot", default="/", metavar="DIR", help="a recorded machine (folder or .tar) instead of this one"
    )
    one.add_argument(
        "--plain", action="store_true", help="without the salt of the day: the same as long as the hardware is the same"
    )
    one.add_argument("--json", action="store_true", help="print one JSON object")


def fingerprint(args: argparse.Namespace) -> int:
    """Look once and print."""
    from dpfedge.backend.registry import Registry
    from dpfedge.hardware.fingerprint import read_prints
    from dpfedge.hardware.source.root import Root
    from dpfedge.hardware.sysroot import machine_root
    from dpfedge.routing.devices import told_facts
    from dpfedge.routing.fingerprint import Privacy
    from dpfedge.routing.fingerprint import fingerprint as make

    with machine_root(args.sysroot) as root:
        told = told_facts(Registry.load()) if args.sysroot == "/" else {}
        made = make(read_prints(Root(root), told), Privacy.PLAIN if args.plain else Privacy.ANONYMOUS)
    print(json.dumps(made.figures(), indent=2) if args.json else "\n".join(_lines(made)))
    return 0


def _lines(made: Fingerprint) -> Iterator[str]:
    figures = made.figures()
    own = "" if made.shared else ", of a salt that is only this process's"
    yield f"digest      {made.digest}"
    yield f"privacy     {made.privacy.value}{own}"
    for device in figures["devices"]:
        yield f"device      {device['name'] or 'unknown'}"
        known = ((key, value) for key, value in device.items() if key != "name" and value is not None)
        yield from (f"  {key.ljust(16)}{value}" for key, value in known)
