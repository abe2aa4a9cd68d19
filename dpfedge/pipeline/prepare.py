# SPDX-License-Identifier: Apache-2.0
"""The first steps of a start: a package and a board in, a bound package and a warming parent of its stages out.

Everything heavy is imported by that parent, beside what the caller does next; this module imports none of it, so that a
package that does not fit is refused at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dpfedge.pipeline.parent import Zygote

if TYPE_CHECKING:
    from dpfedge.binding import Bound

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A bound package and the process that will fork its stages."""

    zygote: Zygote
    bound: Bound

    def close(self) -> None:
        """Give both back, when nothing is started with them."""
        self.zygote.stop(0.0)
        self.bound.package.close()


def prepare(package: str | Path, *, board: str = "auto", check: Literal["fast", "full"] = "fast") -> Prepared:
    """Start the parent of the stages and bind `package`; BindError, BoardError or PackageError as found."""
    zygote = Zygote()
    try:
        # imported beside the parent's own imports, which take longer
        from dpfedge.binding import bind_here
        from dpfedge.package import open_package

        return Prepared(zygote, bind_here(open_package(Path(package), check=check), board))
    except BaseException:
        zygote.stop(0.0)
        raise
