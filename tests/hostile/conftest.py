# SPDX-License-Identifier: Apache-2.0
"""Makes the modules of tests/fuzz importable: both readers behind one question, and manifests to try on them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))
