# SPDX-License-Identifier: Apache-2.0
"""`python -m dpfedge` is the `dpfedge` command."""

from __future__ import annotations

import sys

from dpfedge.cli import main

if __name__ == "__main__":
    sys.exit(main())
