# SPDX-License-Identifier: Apache-2.0
"""Rewrites `snapshot.json` from the files in boards/; run it after a deliberate change of a board."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from dpfedge.hardware.board import read_board

FOLDER = Path(__file__).parents[3] / "boards"


def main() -> None:
    """Write every board's plan, without paths."""
    plans = {}
    for path in sorted(FOLDER.glob("[!_]*.yaml")):
        plan = asdict(read_board(path))
        del plan["path"]
        plans[path.stem] = plan
    text = json.dumps(plans, default=sorted, indent=1, sort_keys=True, ensure_ascii=False)
    Path(__file__).with_name("snapshot.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
