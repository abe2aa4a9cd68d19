# SPDX-License-Identifier: Apache-2.0
"""`dpfedge doctor`: what keeps an installation from working, why, and what to do; every path dpfedge uses."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict

from dpfedge.backend.registry import Registry
from dpfedge.doctor.examine import examine, exit_code
from dpfedge.doctor.places import places
from dpfedge.doctor.surroundings import Surroundings
from dpfedge.doctor.verify import main
from dpfedge.errors import UsageError
from dpfedge.hardware.source.root import Root
from dpfedge.hardware.sysroot import machine_root

NAME = "doctor"
HELP = """Find what keeps an installation from working: packages, drivers, permissions, folders.

examples:
  dpfedge doctor
  dpfedge doctor --backend opencl        only what concerns it; its faults count even without a plugin
  dpfedge doctor --sysroot car.tar       what files tell of a recorded machine
  dpfedge doctor --backend cuda --verify --package voice.dpfbin --report cuda.json
                                         prove it on this machine's device: the suite, a pipeline, a bench

exit code: 0 no fault, 1 a fault of an installed (or asked for) backend, 5 no plugin or device of the one asked for"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--backend", metavar="NAME", help="only this backend")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--sysroot", default="/", metavar="DIR", help="a recorded machine (folder or .tar) instead of this one"
    )
    verifying = parser.add_argument_group("proving a backend (needs dpfedge[testing] and dpfedge-reference)")
    verifying.add_argument("--verify", action="store_true", help="run its suite, a pipeline and a bench on the device")
    verifying.add_argument("--package", metavar="FILE", help="a package to run, compiled for this board")
    verifying.add_argument("--board", default="auto", help="the board to run the package on")
    verifying.add_argument("--report", metavar="FILE", help="write what was found as JSON")


def run(args: argparse.Namespace) -> int:
    """Examine, and print findings and paths."""
    registry = Registry.load()
    if args.verify:
        if args.backend is None or args.sysroot != "/":
            raise UsageError(
                "a backend is proved on this machine", where="--verify", found=f"--sysroot {args.sysroot}",
                remedy="name it with --backend, and leave --sysroot out",
            )  # fmt: skip
        return main(registry, args.backend, args.report, args.package, args.board)
    with machine_root(args.sysroot) as folder:
        surroundings = Surroundings.of(Root(folder))
        findings = examine(surroundings, registry, args.backend)
        live = surroundings.root.live
    used = places() if live else ()
    code = exit_code(findings, registry, args.backend)
    if args.json:
        rows = [
            {"name": one.name, "path": os.fspath(one.path), "variable": one.variable, "state": one.state}
            for one in used
        ]
        print(json.dumps({"ok": code == 0, "findings": [asdict(one) for one in findings], "places": rows}, indent=2))
        return code
    for finding in findings:
        print(finding)
    for place in used:
        print(f"{place.name:10} {place.path}  {place.state}  (${place.variable})")
    faults = sum(one.level == "fault" for one in findings)
    print("no fault" if code == 0 else f"{faults} fault{'s' * (faults != 1)}")
    return code
