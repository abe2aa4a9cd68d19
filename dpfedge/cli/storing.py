# SPDX-License-Identifier: Apache-2.0
"""What the commands around the package store share: where it is, how long to wait for it, which servers were told."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dpfedge.store import Store
from dpfedge.store.collect import Collected
from dpfedge.store.control import switching
from dpfedge.store.lock import WAIT_S
from dpfedge.store.serving import Server
from dpfedge.store.store import Activate

__all__ = ["add_store_arguments", "collected_json", "collected_lines", "told_servers"]


def add_store_arguments(parser: argparse.ArgumentParser, *, changes: bool = True) -> None:
    """`--store`, `--json`, and `--wait` for a command that changes the store."""
    parser.add_argument("--store", type=Path, metavar="DIR", help="the store (default: $DPFEDGE_STORE, see STORE.md)")
    if changes:
        parser.add_argument(
            "--wait", type=float, default=WAIT_S, metavar="SECONDS",
            help="how long to wait for another command (default: %(default)g)",
        )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")


def told_servers(store: Store, wanted: bool) -> tuple[list[int], Activate | None]:
    """The processes that will have been told, filled while it happens, and what tells them."""
    pids: list[int] = []

    def told(server: Server) -> None:
        print(f"dpfedge: server pid {server.pid} warms the package beside the old one", file=sys.stderr)
        pids.append(server.pid)

    return pids, switching(store.places, told) if wanted else None


def collected_json(collected: Collected) -> dict[str, object]:
    """What was deleted and kept, as JSON values."""
    deleted = {str(path): nbytes for path, nbytes in collected.deleted.items()}
    return {"deleted": deleted, "kept": {str(path): pids for path, pids in collected.kept.items()}}


def collected_lines(collected: Collected) -> list[str]:
    """The same for people."""
    total = sum(collected.deleted.values())
    lines = [f"deleted {len(collected.deleted)} files, {total} bytes"]
    for path, pids in collected.kept.items():
        lines.append(f"kept {path}: in use by pid {', '.join(map(str, pids))}; `dpfedge gc` deletes it later")
    return lines
