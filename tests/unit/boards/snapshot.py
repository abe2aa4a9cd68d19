# SPDX-License-Identifier: Apache-2.0
"""Rewrites `snapshot.json` and `boards/_index.json` from the files in boards/; run it after a change of a board."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from dpfedge.hardware.board import read_board
from dpfedge.hardware.boardfile import INDEX, make_index

FOLDER = Path(__file__).parents[3] / "boards"


def main() -> None:
    """Write every board's plan, without paths, and the index."""
    plans = {}
    for path in sorted(FOLDER.glob("[!_]*.yaml")):
        plan = asdict(read_board(path))
        del plan["path"]
        plans[path.stem] = plan
    (FOLDER / INDEX).write_text(make_index(FOLDER))
    text = json.dumps(plans, default=sorted, indent=1, sort_keys=True, ensure_ascii=False)
    Path(__file__).with_name("snapshot.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
