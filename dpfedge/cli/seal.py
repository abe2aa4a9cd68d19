# SPDX-License-Identifier: Apache-2.0
"""`dpfedge seal`: build on this device what only it can build, into a sidecar; the work is done by `dpfedge.seal`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from dpfedge.binding import bind_here
from dpfedge.cli.trusting import load_key
from dpfedge.package import open_package
from dpfedge.package.sidecar import sidecar_of
from dpfedge.seal.build import Sealed, build_seal
from dpfedge.store import Store, locate
from dpfedge.store.find import stored

NAME = "seal"
HELP = """Build on this device what only it can build, into a sidecar beside the package.

examples:
  dpfedge seal voice.dpfbin
  dpfedge seal voice --board orin-agx --key workshop.key

The sidecar holds the weights as this processor packs them, so that every process shares them, and the language model's
opening, computed. It counts for this package, target, device, driver and these library versions only: after a change it
is refused, and this command builds it again. It is never built while a package is served. Of an installed package one
seal is built at a time; installs go on beside it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("package", metavar="PACKAGE", help="a .dpfbin file, or the name of an installed package")
    parser.add_argument("--board", default="auto", metavar="BOARD", help="a board id, or auto (default)")
    parser.add_argument(
        "--key", type=Path, action="append", default=[], metavar="FILE", help="private key; may be given more than once"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Seal, and say what was built."""
    keys = [load_key(path) for path in args.key]
    started = time.monotonic()
    path = locate(args.package).path
    with _alone(path, args.package), open_package(path, check="full") as package, _progress(args.json) as progress:
        # what a sidecar says now is not what is built from
        bound = bind_here(package, args.board, sidecar=False)
        sealed = build_seal(bound, sidecar_of(path), keys=keys, progress=progress)
    if sealed is not None and not keys:
        text = (
            "nobody has signed it, so only a start with --allow-unsigned uses it; name a key to sign it with: --key KEY"
        )
        print(f"dpfedge: warning: {sealed.path}: {text}", file=sys.stderr, flush=True)
    print(_as_json(sealed, time.monotonic() - started) if args.json else _line(sealed, time.monotonic() - started))
    return 0


def _alone(path: Path, named: str) -> AbstractContextManager[None]:
    """What a package in a store is sealed under; nothing for one that lies elsewhere."""
    found = stored(path)
    return nullcontext() if found is None else Store(found[0].root).sealing(found[1], f"dpfedge seal {named}")


def _line(sealed: Sealed | None, seconds: float) -> str:
    if sealed is None:
        return "nothing to build on this device"
    models = ", ".join(dict.fromkeys(item.model for item in sealed.built)) or "no model"
    openings = f"; the opening of {', '.join(sealed.prefixes)}" if sealed.prefixes else ""
    size = f"{sealed.nbytes / 2**20:.1f} MiB in {seconds:.1f} s"
    return f"{sealed.path}: {size}: what this device builds for {models}{openings}"


def _as_json(sealed: Sealed | None, seconds: float) -> str:
    if sealed is None:
        return json.dumps({"sidecar": None})
    built = [item.to_map() for item in sealed.built]
    prefixes = list(sealed.prefixes)
    found = {"sidecar": str(sealed.path), "bytes": sealed.nbytes, "built": built, "prefixes": prefixes}
    return json.dumps({**found, "seconds": round(seconds, 3)})


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda text, done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("seal", total=1.0)
        yield lambda text, done: bars.update(task, description=text, completed=done)
