# SPDX-License-Identifier: Apache-2.0
"""The error tree of dpfedge: every error a caller can act on is one of these.

    DpfError
    ├── UsageError            the caller passed something impossible               exit 2, HTTP 400
    │   └── ConfigError       a YAML file: unknown key, wrong type (file, line, nearest word)
    ├── PackageError          a .dpfbin file cannot be trusted or read             exit 4
    │   ├── FormatError       bytes break the format (file, place, found, allowed)
    │   ├── DigestError       bytes differ from their recorded digest
    │   ├── SignatureError    missing, unknown or wrong signature
    │   └── WriteError        a package cannot be written: full or read-only disk, no permission   exit 1
    ├── StoreError            the package store cannot be read or changed          exit 1
    │   └── StoreBusy         another process is changing it (names the process)
    ├── ModelError            a model source cannot be fetched or imported         exit 1
    │   └── FetchError        download or cache problem
    ├── BoardError            a board is unknown or not this machine               exit 3
    ├── BindError             no target of the package fits board and devices      exit 3
    ├── BackendError          a backend plugin failed while lowering, loading or running   exit 1
    │   ├── Unavailable       plugin, device, driver or privilege is not here      exit 5
    │   ├── Unsupported       the backend will never do this (permanent, with reason)
    │   └── RunCancelled      a run was ended from another thread; its outputs are not to be used
    ├── LinkError             a link broke its contract
    │   ├── WouldBlock        the ring or arena is full and the policy is `fail`   HTTP 429
    │   ├── LinkTimeout       a bounded wait ended
    │   ├── LeaseError        a view was used after release, or belongs to nobody
    │   └── PeerGone          the process at the other end died
    ├── StageError            a stage failed; names the stage                      HTTP 500/503
    │   ├── StageDied         the stage's process died while it held the request
    │   ├── InputError        the request's own data is wrong                      HTTP 400
    │   │   └── ContextLengthError   prompt and answer do not fit (both sizes)
    │   ├── Cancelled         the request was cancelled by its owner
    │   └── DeadlineExceeded  its deadline passed before it was answered           HTTP 504
    ├── RouteError            a routing table cannot be read or published
    │   └── NoInstance        no instance can serve the request; `health` says why    HTTP 503
    └── Busy                  every place for a request is taken                   HTTP 429

Every error keeps its parts as fields (`where`, `found`, `allowed`, `remedy`) so that callers never parse the text.
This module formats nothing for a terminal and knows no other room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

__all__ = [
    "BackendError",
    "BindError",
    "BoardError",
    "Busy",
    "Cancelled",
    "ConfigError",
    "ContextLengthError",
    "DeadlineExceeded",
    "DigestError",
    "DpfError",
    "FetchError",
    "FormatError",
    "InputError",
    "LeaseError",
    "LinkError",
    "LinkTimeout",
    "ModelError",
    "NoInstance",
    "PackageError",
    "PeerGone",
    "RouteError",
    "RunCancelled",
    "SignatureError",
    "StageDied",
    "StageError",
    "StoreBusy",
    "StoreError",
    "Unavailable",
    "Unsupported",
    "UsageError",
    "WouldBlock",
    "WriteError",
]


class DpfError(Exception):
    """Base of all errors dpfedge raises on purpose.

    The text is `where: what; found …; allowed …; remedy`, built from the parts that are given.
    """

    exit_code = 1
    http_status = 500

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        found: object = None,
        allowed: object = None,
        remedy: str | None = None,
    ) -> None:
        self.what, self.where, self.found, self.allowed, self.remedy = what, where, found, allowed, remedy
        super().__init__(self._text())

    def at(self, where: str) -> Self:
        """This error, told of another place: of the file a caller named instead of a copy made of it."""
        self.where = where
        self.args = (self._text(),)
        return self

    def _text(self) -> str:
        parts = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.found is not None:
            parts.append(f"found {self.found}")
        if self.allowed is not None:
            parts.append(f"allowed {self.allowed}")
        if self.remedy:
            parts.append(self.remedy)
        return "; ".join(parts)


class UsageError(DpfError):
    """The caller asked for something impossible or misspelt."""

    exit_code = 2
    http_status = 400


class ConfigError(UsageError):
    """A YAML file has an unknown key, a wrong type or a missing unit."""


class PackageError(DpfError):
    """A package cannot be trusted or read."""

    exit_code = 4


class FormatError(PackageError):
    """Bytes break the package format."""


class DigestError(PackageError):
    """Bytes differ from the digest the manifest records for them."""


class SignatureError(PackageError):
    """A signature is missing, unknown or wrong."""


class WriteError(PackageError):
    """A package cannot be written; what was there before stays."""

    exit_code = 1


class StoreError(DpfError):
    """The package store cannot be read or changed."""


class StoreBusy(StoreError):
    """Another process is changing the store."""


class ModelError(DpfError):
    """A model source cannot be imported."""


class FetchError(ModelError):
    """A model file cannot be fetched, or the cache holds something else."""


class BoardError(DpfError):
    """The board is unknown, or this machine is not that board; `wanted` says what was looked for."""

    exit_code = 3

    def __init__(self, what: str, *, wanted: tuple[str, ...] = (), **parts: object) -> None:
        self.wanted = wanted
        super().__init__(what, **parts)  # type: ignore[arg-type]


class BindError(DpfError):
    """No target of the package fits the board and its devices; `refusals` says why, target by target."""

    exit_code = 3

    def __init__(self, what: str, *, refusals: tuple[object, ...] = (), **parts: object) -> None:
        self.refusals = refusals
        super().__init__(what, **parts)  # type: ignore[arg-type]


class BackendError(DpfError):
    """A backend failed while lowering, sealing, loading or running a model."""


class Unavailable(BackendError):
    """The plugin, device, driver or privilege is not present on this machine."""

    exit_code = 5


class Unsupported(BackendError):
    """The backend will never do this; the reason is permanent."""


class RunCancelled(BackendError):
    """A run of a model was ended from another thread before it was done; what it wrote is not to be used."""

    http_status = 499


class LinkError(DpfError):
    """A link broke its contract."""


class WouldBlock(LinkError):
    """The ring or the arena is full and the link's policy is `fail`."""

    http_status = 429


class LinkTimeout(LinkError):
    """A bounded wait on a link ended without an answer."""


class LeaseError(LinkError):
    """A loan or lease was used after it ended."""


class PeerGone(LinkError):
    """The process at the other end of the link died."""


class StageError(DpfError):
    """A stage failed; `stage` names it."""

    def __init__(self, what: str, *, stage: str | None = None, **parts: object) -> None:
        self.stage = stage
        parts.setdefault("where", f"stage {stage}" if stage else None)
        super().__init__(what, **parts)  # type: ignore[arg-type]


class StageDied(StageError):
    """The stage's process died while it held the request."""

    http_status = 503


class InputError(StageError):
    """The data of the request itself is wrong."""

    exit_code = 2
    http_status = 400


class ContextLengthError(InputError):
    """Prompt and answer do not fit into the context; both sizes are named."""


class Cancelled(StageError):
    """The request was cancelled by its owner."""

    http_status = 499


class DeadlineExceeded(StageError):
    """The request's deadline passed before its answer was there; the stage that had it is named.

    `waited`: that stage was not at work, it waited for what another one owed it.
    """

    http_status = 504

    def __init__(self, what: str, *, waited: bool = False, **parts: object) -> None:
        self.waited = waited
        super().__init__(what, **parts)  # type: ignore[arg-type]


class RouteError(DpfError):
    """A routing table, or the log of one, cannot be read or published."""


class NoInstance(RouteError):
    """No instance can serve the request; `health` is the health map: name → what is known of that instance."""

    http_status = 503

    def __init__(self, what: str, *, health: Mapping[str, Mapping[str, object]] | None = None, **parts: object) -> None:
        self.health = health or {}
        super().__init__(what, **parts)  # type: ignore[arg-type]


class Busy(DpfError):
    """Every place for a request is taken; try again after `retry_after_s` seconds."""

    http_status = 429

    def __init__(self, what: str, *, retry_after_s: int = 1, **parts: object) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(what, **parts)  # type: ignore[arg-type]
