# SPDX-License-Identifier: Apache-2.0
"""What a package must show before it is installed: a trusted signature, a target for this machine, the golden answers.

It writes nothing; the store decides when to ask.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dpfedge.errors import SignatureError
from dpfedge.package import Package
from dpfedge.records import dataclass
from dpfedge.signing import Signer, Trust, require_signature

if TYPE_CHECKING:
    from dpfedge.binding import Bound

__all__ = ["Approval", "Judge"]


class Judge(Protocol):
    """Who looks at a package before the store takes it."""

    def accept(self, package: Package) -> Signer | None:
        """The signer, or None where unsigned packages are allowed; raises when this machine must not have it."""

    def prove(self, package: Package) -> str:
        """Run it for real: `passed`, `none` or `skipped`; raises when its answers are wrong."""


@dataclass(frozen=True, slots=True)
class Approval:
    """The judge of `dpfedge install`."""

    board: str = "auto"
    allow_unsigned: bool = False
    trust: Sequence[Path] | None = None
    golden: bool = True

    def accept(self, package: Package) -> Signer | None:
        """Check signature and board; SignatureError, BoardError or BindError."""
        signer = self._signer(package)
        self._bind(package)
        return signer

    def prove(self, package: Package) -> str:
        """Compare its answers here with the recorded ones; BackendError names the worst."""
        if not self.golden:
            return "skipped"
        if not package.manifest.golden:
            return "none"
        from dpfedge.binding.golden import require_golden  # loads a backend's libraries

        return "passed" if require_golden(self._bind(package)) else "none"

    def _signer(self, package: Package) -> Signer | None:
        trust = Trust.load(self.trust)
        try:
            return require_signature(package, trust)
        except SignatureError:
            trust.refuse_revoked(os.fspath(package.path), package.manifest_sha256)
            if not self.allow_unsigned:
                raise
            return None

    def _bind(self, package: Package) -> Bound:
        from dpfedge.binding import bind_here

        return bind_here(package, self.board)
