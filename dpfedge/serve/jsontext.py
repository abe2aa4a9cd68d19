# SPDX-License-Identifier: Apache-2.0
"""A map in, its JSON as UTF-8 out, also when its text holds what UTF-8 cannot carry; it reads no JSON."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["json_bytes"]


def json_bytes(data: Any) -> bytes:
    r"""`data` as compact JSON; half of a surrogate pair, which JSON can carry and UTF-8 cannot, as `\ud800`."""
    # the codec's backslash form of a surrogate is JSON's own
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")
