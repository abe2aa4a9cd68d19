# SPDX-License-Identifier: Apache-2.0
"""`dpfedge compile`: a recipe of models and a pipeline in, one package file out."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpfedge.backend.registry import Registry
from dpfedge.binding import bind_here
from dpfedge.binding.golden import require_golden
from dpfedge.cli.compile_progress import compile_progress
from dpfedge.cli.trusting import load_key
from dpfedge.errors import BindError, BoardError, Unavailable
from dpfedge.hardware.board import AUTO
from dpfedge.package import open_package
from dpfedge.package.files import call, publish, temporary_beside
from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.section import check_pipeline

if TYPE_CHECKING:
    from dpfedge.compiler.recipe import Recipe
    from dpfedge.signing import PrivateKey

NAME = "compile"
HELP = (
    "Build a package from model files and a pipeline.\n\n"
    "example: dpfedge compile examples/voice/voice.yaml -o voice.dpfbin --board host --board rk3588"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("recipe", type=Path, help="the YAML file that names models and pipeline")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the package to write")
    parser.add_argument(
        "--board", action="append", metavar="ID[:DEVICE]",
        help="board id; with a device of it every model must go there; may be given more than once (default: host)",
    )  # fmt: skip
    parser.add_argument(
        "--mode", choices=["exact", "fast"], help="arithmetic of language models; default: the recipe's"
    )
    parser.add_argument(
        "--sign", type=Path, action="append", default=[], metavar="KEY", help="private key; may be given more than once"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Compile and say what was written."""
    try:
        from dpfedge.compiler.recipe import load_recipe
    except ImportError as error:
        raise Unavailable(
            "the compiler is not installed", found=str(error), remedy="pip install dpfedge[compile]"
        ) from error
    started = time.monotonic()
    keys = [load_key(path) for path in args.sign]  # a key that cannot be read is said before the work, not behind it
    recipe = load_recipe(args.recipe)
    if recipe.section:
        check_pipeline(recipe.section, str(recipe.path))
    with _in_place_of(args.out) as work:
        checked = _build(recipe, work, args, keys)
    nbytes, seconds = args.out.stat().st_size, time.monotonic() - started
    if args.json:
        print(json.dumps({"package": str(args.out), "bytes": nbytes, "seconds": round(seconds, 3), "golden": checked}))
    else:
        ran = (
            "no target runs here, golden values not compared" if checked is None else f"{checked} golden outputs agree"
        )
        print(f"{args.out}: {nbytes / 2**20:.1f} MiB in {seconds:.1f} s; {ran}")
    return 0


@contextlib.contextmanager
def _in_place_of(out: Path) -> Iterator[Path]:
    """A name beside `out` that takes its place at the end: what is there stays until all is written, run and signed."""
    work = temporary_beside(out)
    try:
        yield work
        publish(call(out, os.open, work, os.O_RDONLY | os.O_CLOEXEC), work, out)
    finally:
        work.unlink(missing_ok=True)


def _build(recipe: Recipe, out: Path, args: argparse.Namespace, keys: Sequence[PrivateKey]) -> int | None:
    """Compile, run and sign; how many golden outputs agree here, None when no target runs here."""
    from dpfedge.compiler.emit import compile_package
    from dpfedge.compiler.placing import stages_of
    from dpfedge.compiler.targets import plan_targets
    from dpfedge.seal.bake import bake_prefixes

    boards, registry = args.board or ["host"], Registry.load()
    plans = plan_targets(boards, registry, stages_of([model.name for model in recipe.models], recipe.pipeline))
    with compile_progress(recipe, len(plans), quiet=args.json) as progress:
        compile_package(
            recipe,
            out,
            boards=boards,
            registry=registry,
            mode=args.mode,
            progress=progress,
            on_download=lambda name, done, total: progress(f"{name}: fetch {done >> 20} of {total >> 20} MiB"),
            bake=bake_prefixes,
        )
        progress("golden run")
        checked = _golden_run(out, [board.partition(":")[0] for board in boards], registry)
    if keys:
        from dpfedge.signing import sign_package

        sign_package(out, keys)
    return checked


def _golden_run(path: Path, boards: Sequence[str], registry: Registry) -> int | None:
    """How many outputs this machine gives as the reference did, as each of the boards that it is and as `auto`.

    None when no target runs here. BackendError names the worst output of a package that computes something else.
    """
    checked: dict[tuple[tuple[str, str], ...], int] = {}
    with open_package(path, check="fast") as package:
        if package.manifest.pipeline["stages"]:
            Graph.of_package(package)
        for board in dict.fromkeys([*boards, AUTO]):
            try:
                bound = bind_here(package, board, registry=registry)
            except (BindError, BoardError):
                continue
            placed = tuple((model, place.target.id) for model, place in bound.places.items())
            if placed not in checked:
                checked[placed] = len(require_golden(bound))
    return sum(checked.values()) if checked else None
