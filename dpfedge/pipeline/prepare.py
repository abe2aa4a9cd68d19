# SPDX-License-Identifier: Apache-2.0
"""The first steps of a start: a package and a board in, a bound package and a warming parent of its stages out.

Everything heavy is imported by that parent, beside what the caller does next; this module imports none of it, and
little else: until the parent is started the other processors idle. So a package that does not fit is refused at once.
So is one that nobody trusted has signed, before any stage reads a byte of it: the check takes this process less time
than the parent's imports take that one.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dpfedge.errors import SignatureError
from dpfedge.pipeline.parent import Zygote
from dpfedge.pipeline.shortage import names_shortage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dpfedge.binding import Bound
    from dpfedge.package import Package
    from dpfedge.pipeline.checking import Checking
    from dpfedge.pipeline.plan import Plan
    from dpfedge.store import Installed, Located

__all__ = ["Prepared", "PreparedFile", "is_pipeline_file", "prepare", "prepare_file"]


class Prepared(NamedTuple):
    """A bound package and the process that will fork its stages."""

    zygote: Zygote
    bound: Bound
    located: Located
    """What the caller meant by the package."""
    checking: Checking | None = None
    """The check of the weights, where it was asked for; it may go on."""

    @property
    def plan(self) -> Plan:
        """What an engine starts; ConfigError when the package's pipeline is none."""
        from dpfedge.pipeline.plan import Plan

        return Plan.of_package(self.bound)

    def close(self) -> None:
        """Give both back, when nothing is started with them."""
        self.zygote.stop(0.0)
        if self.checking is not None:
            self.checking.stop()
        self.bound.close()


class PreparedFile(NamedTuple):
    """A checked pipeline file on this machine, and the process that will fork its stages."""

    zygote: Zygote
    plan: Plan
    checking: Checking | None = None

    def close(self) -> None:
        """Give all back, when nothing is started with it."""
        self.zygote.stop(0.0)
        if self.checking is not None:
            self.checking.stop()
        if self.plan.bound is not None:
            self.plan.bound.close()


def is_pipeline_file(path: str | Path) -> bool:
    """Whether a path names a pipeline file, not a package: by its suffix."""
    return os.path.splitext(path)[1] in (".yaml", ".yml")


@names_shortage
def prepare_file(path: Path, *, board: str = "auto", **options: Any) -> PreparedFile:
    """As `prepare`, for a pipeline file; `options` are those of `prepare`, for the package that the file names.

    ConfigError names file and line, of ports that do not fit both; and whatever `prepare` raises.
    """
    from dpfedge.pipeline.plan import PipelineFile, Plan

    file = PipelineFile.load(path)
    if file.package is not None:
        prepared = prepare(file.package, board=board, **options)
        try:
            return PreparedFile(
                prepared.zygote, Plan.of_file(file, prepared.bound.board, prepared.bound), prepared.checking
            )
        except BaseException:
            prepared.close()
            raise
    from dpfedge.binding.here import look

    plan = Plan.of_file(file, look(board).board, None)
    return PreparedFile(Zygote(), plan)


@names_shortage
def prepare(
    package: str | Path | Located,
    *,
    board: str = "auto",
    check: Literal["fast", "full"] = "full",
    allow_unsigned: bool = False,
    trust: Sequence[Path] | None = None,
    own: bool = False,
) -> Prepared:
    """Start the parent of the stages and bind `package`, a file or the name of an installed one.

    `check` is for a file from outside the store, where nobody has compared its bytes with their digests yet: `full`
    compares what is parsed at once and the weights beside the stages' start, `fast` only header and manifest.
    `own`: this process is a command of dpfedge, with no application in it; the parent is then forked off it.

    BindError, BoardError, PackageError or StoreError as found; SignatureError unless a key of the directories `trust`
    (None: those of `dpfedge.signing.trust.trust_folders`) has signed it; `allow_unsigned` makes a line on stderr of
    that.
    """
    zygote = Zygote(own=own)
    try:
        # imported beside the parent's own imports, which take longer
        from dpfedge.binding import bind_here
        from dpfedge.package.verify import check_content, known_check
        from dpfedge.pipeline.checking import Checking, is_weights
        from dpfedge.store import Located, locate

        known_check(check)
        located = package if isinstance(package, Located) else locate(package)
        opened, installed = located.open(), located.installed
        unchecked = installed is None and check == "full"
        if installed is None:
            _check_signer(opened, allow_unsigned, trust)
        else:
            _check_installed(installed, opened, allow_unsigned, trust)
        if unchecked:
            check_content(opened, lambda section: not is_weights(section))
        vouch = partial(_check_signer, allow_unsigned=allow_unsigned, folders=trust)
        bound = bind_here(opened, board, check=check, vouch=vouch)
        for stale in bound.stale:
            print(f"dpfedge: warning: {stale}", file=sys.stderr, flush=True)
        return Prepared(zygote, bound, located, Checking(opened) if unchecked else None)
    except BaseException:
        zygote.stop(0.0)
        raise


def _check_signer(package: Package, allow_unsigned: bool, folders: Sequence[Path] | None) -> None:
    from dpfedge.signing import Trust, require_signature

    trust, where = Trust.load(folders), os.fspath(package.path)
    try:
        require_signature(package, trust)
    except SignatureError as error:
        trust.refuse_revoked(where, package.manifest_sha256)  # somebody said no to these very bytes, signed or not
        if not allow_unsigned:
            raise
        _warn(where, error)


def _check_installed(
    installed: Installed, package: Package, allow_unsigned: bool, folders: Sequence[Path] | None
) -> None:
    """Its signature was checked when it was installed; since then it can have been revoked."""
    from dpfedge.signing import Trust

    signer, where = installed.verified.signer, os.fspath(package.path)
    Trust.load(folders).refuse_revoked(where, package.manifest_sha256, signer.key_id if signer else None)
    if installed.state() == "changed":
        text = "changed since it was installed: every byte was checked; install it again, and starts are fast again"
        print(f"dpfedge: warning: {where}: {text}", file=sys.stderr, flush=True)
    if signer is None:
        remedy = "install a signed one, or take --allow-unsigned"
        error = SignatureError("the package was installed unsigned", where=where, remedy=remedy)
        if not allow_unsigned:
            raise error
        _warn(where, error)


def _warn(where: str, error: SignatureError) -> None:
    text = f"dpfedge: warning: {where}: {error.what}; it runs all the same, because unsigned packages are allowed"
    print(text, file=sys.stderr, flush=True)
