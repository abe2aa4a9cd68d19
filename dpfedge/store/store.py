# SPDX-License-Identifier: Apache-2.0
"""Installed packages: files in, two slots for each name out, each change whole or not at all; STORE.md is normative.

Only here the store's folders are changed, and only by the holder of its lock. Who reads needs no lock: a slots file is
replaced at once, and the files it names are on the disk before it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from dpfedge.errors import DpfError, PackageError, StoreError, UsageError
from dpfedge.package import Package, open_package
from dpfedge.records import dataclass
from dpfedge.signing import Signer, Trust
from dpfedge.store.approval import Judge
from dpfedge.store.collect import Collected, collect
from dpfedge.store.copying import copy_in, require_space
from dpfedge.store.durable import changing, fsync_folder, make_folder, place, unlink
from dpfedge.store.find import active, by_id, unknown
from dpfedge.store.located import Located
from dpfedge.store.lock import WAIT_S, locked, ready
from dpfedge.store.places import Places, default_root
from dpfedge.store.record import Installed, Stamp, Verified, boot_id, package_id, write_record
from dpfedge.store.sample import take_sample
from dpfedge.store.slots import Slots, read_slots, write_slots

__all__ = ["Activate", "Entry", "Installation", "Store", "Switch"]


class Switch(Protocol):
    """Running servers that have the new package warm beside the old one."""

    moved: bool
    """Whether one of them gives new requests to the new package."""

    def commit(self) -> None:
        """New requests go to the new package from now on; DpfError when they do not."""

    def drop(self) -> None:
        """Forget the new package; raises nothing."""


Activate = Callable[[Installed], Switch | None]
"""Called before the slots are switched; raises when a running server cannot have the package, None without a server."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What an install did."""

    installed: Installed
    previous: Installed | None
    copied: bool
    """False when the store had the file already."""
    switched: bool
    """False when it was active already."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in the store."""

    name: str
    active: Installed | None
    previous: Installed | None
    problem: str | None = None
    """Why a slot cannot be told."""


class Store:
    """The packages below `root` (None: `default_root()`); methods that change it wait for its lock up to `wait_s`."""

    def __init__(self, root: Path | None = None, *, wait_s: float = WAIT_S) -> None:
        self.places, self._wait_s = Places(default_root() if root is None else Path(root).absolute()), wait_s

    @property
    def root(self) -> Path:
        """Where it is."""
        return self.places.root

    def active(self, name: str) -> Installed:
        """The package in the active slot; UsageError with the names there are, StoreError when it cannot be told."""
        return active(self.places, name)

    def find(self, id: str) -> Installed:
        """The package with this id; StoreError when there is none."""
        return by_id(self.places, id)

    def list(self) -> list[Entry]:
        """Every name, in order; a damaged one is an entry with its problem."""
        return [self._entry(name) for name in self.places.known_names()]

    def install(self, path: Path, judge: Judge, activate: Activate | None = None) -> Installation:
        """Take a package file in, and make it active once it proved good on this machine; the old state otherwise.

        PackageError, BoardError, BindError or BackendError say why the package is refused, StoreError why the store
        cannot take it.
        """
        with open_package(path, check="fast") as source, self.changing(f"dpfedge install {path}"):
            judge.accept(source)  # before the copy: a refusal is quick, and wears no flash
            id, name = package_id(source), source.manifest.name
            self.places.slots(name)
            installed = self._reusable(id, judge)
            copied = installed is None
            if installed is None:
                installed = self._take_in(path, source, id, judge)
            before = self._slots_or_none(name)
            slots = before.with_active(id) if before else Slots(id)
            if slots != before or activate is not None:  # a running server may serve an older one
                self._switch(name, slots, installed, activate)
            return Installation(installed, self._find_or_none(slots.previous), copied, slots != before)

    def rollback(self, name: str, activate: Activate | None = None) -> Installed:
        """Swap the slots; UsageError when nothing was active before, PackageError when that one cannot be used."""
        with self.changing(f"dpfedge rollback {name}"):
            slots = read_slots(self.places.slots(name), name)
            if slots is None:
                raise unknown(self.places, name)
            if slots.previous is None:
                what = f"{name!r} has no previous package"
                raise UsageError(what, where=os.fspath(self.root), remedy="install the version you want")
            installed = self.find(slots.previous)
            with Located(installed.path, installed, self.root).open() as package:  # a damaged one is no way back
                signer = installed.verified.signer
                where, key = os.fspath(installed.path), signer.key_id if signer else None
                Trust.load().refuse_revoked(where, package.manifest_sha256, key)
            self._switch(name, Slots(slots.previous, slots.active), installed, activate)
            return installed

    def remove(self, name: str) -> Collected:
        """Forget a name, and delete its files unless another name or a running process uses them."""
        with self.changing(f"dpfedge remove {name}"):
            place = self.places.slots(name)
            if not place.exists():
                raise unknown(self.places, name)
            with changing(place):
                unlink(place)
                return collect(self.places)

    def gc(self) -> Collected:
        """Delete what no slot refers to, except what a running process has mapped."""
        with self.changing("dpfedge gc"), changing(self.root):
            return collect(self.places)

    @contextlib.contextmanager
    def changing(self, what: str) -> Iterator[None]:
        """Hold the store's lock to do `what`, in a store that has its folders; StoreBusy names who holds it."""
        with changing(self.root):
            for folder in self.places.folders():
                make_folder(folder)
        with locked(self.places.lock, what, self._wait_s):
            yield

    @contextlib.contextmanager
    def sealing(self, id: str, what: str) -> Iterator[None]:
        """Hold what building a seal of package `id` needs; StoreBusy names who builds one already.

        Meanwhile nothing of the package is deleted. Installs and servers are not held up: the store's own lock is taken
        only to begin.
        """
        with contextlib.ExitStack() as until_built:
            with self.changing(what):  # who deletes lock files holds it
                lock, doing = self.places.sealing(id), "another process builds a seal for this package"
                ready(lock)
                until_built.enter_context(locked(lock, what, 0.0, doing))
            yield

    # --- steps of an install ---

    def _reusable(self, id: str, judge: Judge) -> Installed | None:
        """The package with this id if the store has it whole; what was left out at its install is made up for."""
        try:
            installed = self.find(id)
            fresh = installed.state() == "unchanged"
            with open_package(installed.path, check="fast" if fresh else "full") as package:
                if package_id(package) != id:
                    return None
                signer, golden = judge.accept(package), installed.verified.golden
                if golden == "skipped":
                    golden = judge.prove(package)
        except (StoreError, PackageError):
            return None
        if fresh and (signer, golden) == (installed.verified.signer, installed.verified.golden):
            return installed
        return self._record(id, package, signer, golden)

    def _take_in(self, path: Path, source: Package, id: str, judge: Judge) -> Installed:
        require_space(self.places.incoming, source.nbytes)
        copy, final = self.places.copy(id), self.places.package(id)
        with changing(copy):
            copy.unlink(missing_ok=True)  # a killed install left it: this process has the lock
        try:
            file = open(path, "rb", buffering=0)  # noqa: SIM115 - only its opening is the package's affair
        except OSError as error:
            raise PackageError(f"cannot open the package: {error.strerror}", where=os.fspath(path)) from error
        with file:
            copy_in(file.fileno(), copy, source.nbytes)
        try:
            with _named(copy, path), open_package(copy, check="full") as package:
                if package_id(package) != id:
                    raise PackageError("the file was replaced while it was installed", where=os.fspath(path))
                signer = judge.accept(package)
                golden = judge.prove(package)
            with changing(final, source.nbytes):
                place(copy, final)
        except BaseException:
            with contextlib.suppress(OSError):
                copy.unlink(missing_ok=True)
            raise
        return self._record(id, package, signer, golden)

    def _record(self, id: str, package: Package, signer: Signer | None, golden: str) -> Installed:
        """Write down what was found out about a file that was just read in full."""
        path, manifest = self.places.package(id), package.manifest
        with changing(path):
            stamp = Stamp.of(path)
            verified = Verified(signer, golden, stamp, boot_id(), take_sample(path, stamp.size))
            installed = Installed(id, manifest.name, manifest.version, package.manifest_sha256.hex(), path, verified)
            write_record(self.places.record(id), installed)
        return installed

    def _switch(self, name: str, slots: Slots, installed: Installed, activate: Activate | None) -> None:
        """Make `slots` those of `name`; a running server has the package warm before, or nothing changes."""
        place, before = self.places.slots(name), self._slots_or_none(name)
        switch = activate(installed) if activate else None
        try:
            if slots != before:
                with changing(place):
                    write_slots(place, name, slots)
        except BaseException:
            if switch is not None:
                switch.drop()
            raise
        if switch is not None:
            self._commit(switch, place, name, before)

    def _commit(self, switch: Switch, place: Path, name: str, before: Slots | None) -> None:
        try:
            switch.commit()
        except BaseException:
            switch.drop()
            if not switch.moved:
                with changing(place):
                    _put_back(place, name, before)
            raise

    # --- what is there ---

    def _slots_or_none(self, name: str) -> Slots | None:
        """The slots; None also when they are damaged, which an install repairs."""
        try:
            return read_slots(self.places.slots(name), name)
        except StoreError:
            return None

    def _find_or_none(self, id: str | None) -> Installed | None:
        try:
            return self.find(id) if id else None
        except StoreError:
            return None

    def _entry(self, name: str) -> Entry:
        try:
            slots = read_slots(self.places.slots(name), name)
            if slots is None:  # removed meanwhile
                return Entry(name, None, None, "it is being removed")
            return Entry(name, self.find(slots.active), self.find(slots.previous) if slots.previous else None)
        except StoreError as error:
            return Entry(name, None, None, str(error))


def _put_back(place: Path, name: str, before: Slots | None) -> None:
    if before is None:
        place.unlink(missing_ok=True)
        fsync_folder(place.parent)
    else:
        write_slots(place, name, before)


@contextlib.contextmanager
def _named(copy: Path, path: Path) -> Iterator[None]:
    """Errors about the copy name the file the caller gave: what is wrong with the one was wrong with the other."""
    try:
        yield
    except DpfError as error:
        if error.where is not None and os.fspath(copy) in error.where:
            raise error.at(error.where.replace(os.fspath(copy), os.fspath(path))) from None
        raise
