# SPDX-License-Identifier: Apache-2.0
"""Settings that change while a stage runs: its own and those that are to win in, all of them together out.

What such a change does is the stage's own affair; see `api.Adjusts`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dpfedge.config import nearest
from dpfedge.errors import ConfigError

__all__ = ["adjusted"]


def adjusted(own: Mapping[str, Any], settings: Mapping[str, Any], live: Collection[str], where: str) -> dict[str, Any]:
    """What a stage was started with, except for `settings`; ConfigError names one that is not among the `live` ones."""
    for name in settings:
        if name not in live:
            raise ConfigError(
                "this setting cannot change while the stage runs", where=where, found=name, allowed=", ".join(live),
                remedy=nearest(name, live),
            )  # fmt: skip
    return {**own, **settings}
