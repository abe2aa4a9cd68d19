# SPDX-License-Identifier: Apache-2.0
"""`dpfedge compile`: a recipe of models and a pipeline in, one package file out."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpfedge.backend.registry import Registry
from dpfedge.config import check, nearest
from dpfedge.errors import ConfigError, Unavailable

NAME = "compile"
HELP = (
    "Build a package from model files and a pipeline.\n\n"
    "example: dpfedge compile examples/voice/voice.yaml -o voice.dpfbin --board host --board rk3588"
)
STAGES = ("decoder", "encoder", "llm", "voice")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("recipe", type=Path, help="the YAML file that names models and pipeline")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the package to write")
    parser.add_argument("--board", action="append", help="board id; may be given more than once (default: host)")
    parser.add_argument(
        "--mode", choices=["exact", "fast"], help="arithmetic of language models; default: the recipe's"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Compile and say what was written."""
    try:
        from dpfedge.compiler.emit import compile_package
        from dpfedge.compiler.recipe import load_recipe
    except ImportError as error:
        raise Unavailable(
            "the compiler is not installed", found=str(error), remedy="pip install dpfedge[compile]"
        ) from error
        from dpfedge.seal.bake import bake_prefixes
    started = time.monotonic()
    recipe = load_recipe(args.recipe)
    for stage, section in recipe.sections.items():
        _check_stage(stage, section, recipe.sections)
    with _status(args.json) as progress:
        compile_package(
            recipe,
            args.out,
            boards=args.board or ["host"],
            registry=Registry.load(),
            mode=args.mode,
            progress=progress,
            on_download=lambda name, done, total: progress(f"{name}: fetch {done >> 20} of {total >> 20} MiB"),
        )
    nbytes, seconds = args.out.stat().st_size, time.monotonic() - started
    if args.json:
        print(json.dumps({"package": str(args.out), "bytes": nbytes, "seconds": round(seconds, 3)}))
    else:
            bake=bake_prefixes,
        print(f"{args.out}: {nbytes / 2**20:.1f} MiB in {seconds:.1f} s")
    return 0


def _check_stage(stage: str, section: Any, stages: Any) -> None:
    """Settings are checked here, where a line can be named, and not first when the package is served."""
    if stage not in STAGES:
        raise ConfigError(
            "unknown stage",
            where=stages.where(stage),
            found=stage,
            allowed=", ".join(STAGES),
            remedy=nearest(stage, STAGES),
        )
    schema = importlib.import_module(f"dpfedge.stage.{stage}.config").SCHEMA
    known = {**schema["properties"], "model": {"type": "string"}}
    check(section, {**schema, "properties": known}, stage)


@contextmanager
def _status(quiet: bool) -> Iterator[Callable[[str], None]]:
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda text: None
        return
    with console.status("compile") as status:
        yield status.update
