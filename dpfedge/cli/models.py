# SPDX-License-Identifier: Apache-2.0
"""`dpfedge models`: list, fetch and delete models of the catalogue; the work is done by `dpfedge.models`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any

from dpfedge.models import CatalogueModel, OnProgress, cached, catalogue, pull, remove
from dpfedge.models.cache import folder

NAME = "models"
HELP = """List and fetch the models of the catalogue.

examples:
  dpfedge models list
  dpfedge models pull silero-vad moonshine-tiny-en

Files are kept in $DPFEDGE_HOME/models, else in the user's cache folder, and are checked by SHA-256."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    actions = parser.add_subparsers(dest="action", metavar="list|pull|remove", required=True)
    listing = actions.add_parser("list", help="show every model: licence, size, whether it is here")
    listing.add_argument("--json", action="store_true", help="print JSON")
    fetching = actions.add_parser("pull", help="fetch models; nothing is fetched twice")
    fetching.add_argument("names", nargs="+", metavar="NAME", help="name in the catalogue, or `all`")
    removing = actions.add_parser("remove", help="delete models from the cache")
    removing.add_argument("names", nargs="+", metavar="NAME", help="name in the catalogue")


def run(args: argparse.Namespace) -> int:
    """Carry out one action."""
    if args.action == "list":
        return _list(args.json)
    if args.action == "remove":
        for name in args.names:
            print(f"{name}: {_megabytes(remove(name))} freed")
        return 0
    for name in list(catalogue()) if args.names == ["all"] else args.names:
        with _progress(name) as on_progress:
            files = pull(name, on_progress)
        print(f"{name}: {files.dir} ({files.licence})")
    return 0


def _list(as_json: bool) -> int:
    rows = [_row(model) for model in catalogue().values()]
    if as_json:
        print(json.dumps({"models": rows}, indent=2))
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        here = "cached" if row["cached"] else "-"
        print(f"{row['name']:<{width}}  {_megabytes(row['bytes']):>9}  {here:<6}  {row['licence']:<15}  {row['title']}")
    return 0


def _row(model: CatalogueModel) -> dict[str, Any]:
    return {
        "name": model.name, "title": model.title, "licence": model.licence, "note": model.note,
        "homepage": model.homepage, "source": str(model.source), "bytes": model.nbytes, "cached": cached(model.name),
        "dir": str(folder(model)),
        "files": {name: {"sha256": file.sha256, "bytes": file.nbytes} for name, file in model.files.items()},
    }  # fmt: skip


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


@contextlib.contextmanager
def _progress(name: str) -> Iterator[OnProgress | None]:
    """A bar on a terminal; elsewhere one line when a download really starts."""
    if not sys.stderr.isatty():
        yield _Announce(name)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


class _Announce:
    """Says once that a download has begun."""

    def __init__(self, name: str) -> None:
        self.name, self.said = name, False

    def __call__(self, done: int, total: int) -> None:
        if not self.said:
            self.said = True
            print(f"fetching {self.name}: {_megabytes(total)}", file=sys.stderr)
