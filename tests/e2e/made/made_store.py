# SPDX-License-Identifier: Apache-2.0
"""Every point at which a change of a store can be interrupted: `python made_store.py WHAT FOLDER SCENE…` as JSON.

`kill` ends an install, a rollback, a removal or a collection at the entry of every system call in turn, `fail` makes
every call that writes fail in turn, `dying` that and all after it, `order` records the calls. After each, the store is
looked at and used again.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from made_trace import KILL, Call, Outcome, run

from dpfedge.errors import DpfError, UsageError
from dpfedge.package import Package, PackageWriter
from dpfedge.signing import Signer
from dpfedge.store import Store, collect, locate

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)


class Yes:
    """A judge for tiny packages, which no backend runs."""

    def accept(self, package: Package) -> Signer | None:
        return None

    def prove(self, package: Package) -> str:
        return "none"


def package(folder: Path, version: str) -> Path:
    """A package of three pages."""
    path = folder / f"{version}.dpfbin"
    with PackageWriter(path, name="voice", version=version) as writer:
        writer.add("weights", "weights", version.encode() * 9000)
        writer.finish({})
    return path


class Scene:
    """A store in some state, the change that is interrupted, and the versions that may be active afterwards."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.base, self.root = name, folder / f"{name} base", folder / f"{name} ü"
        self.files = {version: package(folder, version) for version in ("1", "2", "3")}
        store = Store(self.base)
        before = {"first": "", "second": "1", "third": "12", "rollback": "12", "remove": "12", "gc": "123"}[name]
        for version in before:
            store.install(self.files[version], Yes())
        self.old = (before[-1:] or None, before[-2:-1] or None)
        self.new: tuple[str | None, str | None] = {
            "first": ("1", None), "second": ("2", "1"), "third": ("3", "2"), "rollback": ("1", "2"),
            "remove": (None, None), "gc": ("3", "2"),
        }[name]  # fmt: skip

    def begin(self) -> None:
        """The state before."""
        shutil.rmtree(self.root, ignore_errors=True)
        if self.base.exists():
            # the files keep their times, but not their inodes: what is installed again has its record renewed
            shutil.copytree(self.base, self.root)

    def change(self) -> None:
        """What is interrupted."""
        store = Store(self.root, wait_s=0)
        if self.name == "rollback":
            store.rollback("voice")
        elif self.name == "remove":
            store.remove("voice")
        elif self.name == "gc":
            store.gc()
        else:
            store.install(self.files[self.new[0] or ""], Yes())

    def versions(self) -> tuple[str | None, str | None]:
        """Active and previous, after every byte of both was checked."""
        store = Store(self.root)
        try:
            active = store.active("voice")
        except UsageError:
            return None, None
        locate("voice", self.root).open("full").close()
        previous = store.list()[0].previous
        return active.version, previous and previous.version

    def problem(self, wanted: set[tuple[str | None, str | None]]) -> str | None:
        """What is wrong with the store; then it is used again, and cleaned."""
        try:
            found = self.versions()
            if found not in wanted:
                return f"active and previous are {found}, wanted one of {wanted}"
            store = Store(self.root, wait_s=0)
            for version in ("2", "3"):
                store.install(self.files[version], Yes())
            if self.versions() != ("3", "2"):
                return f"after two installs: {self.versions()}"
            store.gc()
        except DpfError as error:
            return f"{type(error).__name__}: {error}"
        names = sorted(path.name for folder in store.places.folders()[1:] for path in folder.iterdir())
        kept = [one for entry in store.list() for one in (entry.active, entry.previous) if one]
        expected = sorted([*(f"{one.id}.{end}" for one in kept for end in ("dpfbin", "json")), "voice.json"])
        return None if names == expected else f"left over: {sorted(set(names) ^ set(expected))}"


def kill(scene: Scene) -> dict[str, Any]:
    """Kill at call 0, 1, 2 … until the change completes."""
    bad, point = [], 0
    while True:
        scene.begin()
        outcome = run(scene.change, lambda call, point=point: KILL if call.index == point else None)  # type: ignore[misc]
        if not outcome.killed:
            break
        if problem := scene.problem({scene.old, scene.new}):
            bad.append(f"{point} {outcome.calls[-1]}: {problem}")
        point += 1
    if outcome.error is not None or scene.versions() != scene.new:
        bad.append(f"uninterrupted: {outcome.error} {scene.versions()}")
    return {"points": point, "bad": bad}


def fail(scene: Scene, lasting: bool = False) -> dict[str, Any]:
    """Make each call that writes into the store fail with each error; `lasting`: and every such call after it."""
    scene.begin()
    calls = [call for call in run(scene.change, lambda call: None).calls if _writes(scene, call)]
    bad, told, passed = [], set(), set()
    for place in range(len(calls)):
        for code in ERRORS:
            scene.begin()
            outcome = _failing(scene, place, code, lasting)
            if outcome.error is None:
                passed.add(f"{calls[place].name} {Path(calls[place].paths[-1]).name}")
            else:
                told.add(_general(outcome.error, scene))
            # of a dying disk nobody knows; a removal is made with its first step
            either = "the change was made" in (outcome.error or "") or scene.name == "remove"
            wanted = {scene.old, scene.new} if either else {scene.old if outcome.error else scene.new}
            if problem := scene.problem(wanted):
                bad.append(f"{calls[place]} {errno.errorcode[code]}: {outcome.error}: {problem}")
    return {"points": len(calls) * len(ERRORS), "bad": bad, "told": sorted(told), "passed": sorted(passed)}


def _failing(scene: Scene, place: int, code: int, lasting: bool) -> Outcome:
    seen = 0

    def at_entry(call: Call) -> int | None:
        nonlocal seen
        if not _writes(scene, call):
            return None
        seen += 1
        return code if seen == place + 1 or (lasting and seen > place) else None

    return run(scene.change, at_entry)


def _writes(scene: Scene, call: Call) -> bool:
    return call.changes and any(path.startswith(str(scene.root)) for path in call.paths)


def _general(text: str, scene: Scene) -> str:
    """An error's text without what differs between runs."""
    text = re.sub(r"[0-9a-f]{64}", "ID", text.replace(str(scene.root), "STORE"))
    return re.sub(r"\b\d+ bytes", "N bytes", text)


def order(scene: Scene) -> dict[str, Any]:
    """The calls that write into the store, as `name path` with ids and the store's own path left out."""
    scene.begin()
    outcome = run(scene.change, lambda call: None)
    ids = {path.stem: f"ID{number}" for number, path in enumerate(sorted((scene.root / "files").glob("*.dpfbin")))}
    lines = []
    for call in outcome.calls:
        if _writes(scene, call):
            lines.append(" ".join([call.name, *(_short(path, scene.root, ids) for path in call.paths)]))
    return {"calls": lines, "error": outcome.error}


def _short(path: str, root: Path, ids: dict[str, str]) -> str:
    for id, name in ids.items():
        path = path.replace(id, name)
    return path.removeprefix(str(root)).lstrip("/") or "."


def main() -> None:
    """What is asked for, of every scene that is named."""
    what: dict[str, Callable[[Scene], dict[str, Any]]] = {
        "kill": kill, "fail": fail, "dying": lambda scene: fail(scene, True), "order": order,
    }  # fmt: skip
    collect.in_use = lambda files: {}  # no process has anything mapped, and finding that out takes 2000 calls
    folder = Path(sys.argv[2])
    os.environ["XDG_RUNTIME_DIR"] = str(folder / "run")
    print(json.dumps({name: what[sys.argv[1]](Scene(folder, name)) for name in sys.argv[3:]}, indent=1))


if __name__ == "__main__":
    main()
