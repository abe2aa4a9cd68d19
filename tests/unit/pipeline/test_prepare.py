# SPDX-License-Identifier: Apache-2.0
"""The first steps of a start, and what is left when one of them fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.binding.stale import Stale
from dpfedge.errors import BoardError, DpfError, PackageError, SignatureError, UsageError
from dpfedge.package import open_package
from dpfedge.pipeline import prepare as module
from dpfedge.pipeline.prepare import prepare
from dpfedge.signing import Signer
from dpfedge.store import Installed, Store


class ToyZygote:
    made: list[ToyZygote]

    def __init__(self, *, own: bool = False) -> None:
        self.own = own
        self.stopped: list[float] = []
        ToyZygote.made.append(self)

    def stop(self, grace_s: float = 2.0) -> None:
        self.stopped.append(grace_s)


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    ToyZygote.made = []
    monkeypatch.setattr(module, "Zygote", ToyZygote)


@pytest.fixture
def _signed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is opened is vouched for."""
    monkeypatch.setattr(module, "_check_signer", lambda *_, **__: None)


def test_prepare__that_fails_ends_the_zygote_at_once(tmp_path: Path) -> None:
    """A missing file, and a board this is not."""
    for package in (tmp_path / "missing", tmp_path):
        with pytest.raises((DpfError, OSError)):
            prepare(package)

    assert [zygote.stopped for zygote in ToyZygote.made] == [[0.0], [0.0]]


def test_prepare__in_a_process_of_dpfedges_own(tmp_path: Path) -> None:
    """The parent of the stages is told, and only then."""
    for own in (True, False):
        with pytest.raises((DpfError, OSError)):
            prepare(tmp_path / "missing", own=own)

    assert [zygote.own for zygote in ToyZygote.made] == [True, False]


def test_prepare__a_misspelt_check_is_none() -> None:
    """It must not be a start that checks nothing."""
    with pytest.raises(UsageError, match="check: there is no such check; found 'ful'; allowed fast, full"):
        prepare("./x", check="ful")  # type: ignore[arg-type]
    assert ToyZygote.made[0].stopped == [0.0]


@pytest.mark.usefixtures("_signed")
def test_prepare__refused_by_the_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal is the caller's."""

    def refuse(package: Any, board: str, **_: Any) -> Any:
        raise BoardError(f"not {board}")

    monkeypatch.setattr("dpfedge.store.located.open_package", lambda path, check: None)
    monkeypatch.setattr("dpfedge.binding.bind_here", refuse)
    with pytest.raises(BoardError, match="not orin"):
        prepare("./x", board="orin", check="fast")
    assert ToyZygote.made[0].stopped == [0.0]


@pytest.mark.usefixtures("_signed")
def test_prepared__closed_gives_both_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing is started with them."""
    closed: list[int] = []
    monkeypatch.setattr("dpfedge.store.located.open_package", lambda path, check: None)
    bound = SimpleNamespace(close=lambda: closed.append(1), stale=())
    monkeypatch.setattr("dpfedge.binding.bind_here", lambda package, board, **_: bound)
    prepare("./x", check="fast").close()

    assert (closed, ToyZygote.made[0].stopped) == ([1], [0.0])


def test_prepare__a_sidecar_needs_a_signature_as_the_package_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may vouch for the package may vouch for its sidecar, by the same keys."""
    checked: list[Any] = []
    monkeypatch.setattr(module, "_check_signer", lambda *given, **named: checked.append((*given, *named.values())))
    monkeypatch.setattr("dpfedge.store.located.open_package", lambda path, check: "package")

    def bind(package: Any, board: str, *, check: str, vouch: Any) -> Any:
        vouch("sidecar")
        return SimpleNamespace(stale=())

    monkeypatch.setattr("dpfedge.binding.bind_here", bind)
    prepare("./x", trust=[Path("keys")], check="fast")
    assert checked == [("package", False, [Path("keys")]), ("sidecar", False, [Path("keys")])]


@pytest.mark.usefixtures("_signed")
def test_prepare__says_why_a_seal_is_not_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stale seal costs a line for each difference, not the start."""
    stale = Stale("seal x.dpfbin.dpfseal", "library/onnxruntime", "1.31.0", "1.32.0")
    bound = SimpleNamespace(package=None, sidecar=None, stale=(stale,))
    monkeypatch.setattr("dpfedge.store.located.open_package", lambda path, check: None)
    monkeypatch.setattr("dpfedge.binding.bind_here", lambda package, board, **_: bound)

    assert prepare("./x", check="fast").bound is bound
    assert capsys.readouterr().err == (
        "dpfedge: warning: seal x.dpfbin.dpfseal: refused: library/onnxruntime: wanted 1.31.0; found 1.32.0; "
        "run `dpfedge seal`\n"
    )


GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Binding that takes everything; names of the packages it saw."""
    seen: list[str] = []

    def bind(package: Any, board: str, **_: Any) -> Any:
        seen.append(package.manifest.name)
        return SimpleNamespace(package=package, sidecar=None, stale=())

    monkeypatch.setattr("dpfedge.binding.bind_here", bind)
    return seen


def test_prepare__takes_what_a_trusted_key_signed(bound: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """In silence; the directories come from the caller or from the environment."""
    prepare(GOLDEN / "v1/signed.dpfbin", trust=[GOLDEN / "trust"])

    assert (bound, capsys.readouterr().err) == (["signed"], "")


@pytest.mark.parametrize(("name", "text"), [
    ("tiny", "the package is not signed"),
    ("signed", "no key that signed the package is trusted here"),
])  # fmt: skip
def test_prepare__refuses_others(
    bound: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    """Before anything is bound, and with one loud line when the caller insists."""
    path = GOLDEN / f"v1/{name}.dpfbin"
    with pytest.raises(SignatureError, match=text):
        prepare(path, trust=[tmp_path])
    assert (bound, ToyZygote.made[0].stopped) == ([], [0.0])

    prepare(path, trust=[tmp_path], allow_unsigned=True)

    assert bound == [name]
    assert capsys.readouterr().err == (
        f"dpfedge: warning: {path}: {text}; it runs all the same, because unsigned packages are allowed\n"
    )


def test_prepare__refuses_a_revoked_version_always(bound: list[str], tmp_path: Path) -> None:
    """Somebody said no to it: `allow_unsigned` is about packages nobody said anything about."""
    with open_package(GOLDEN / "v1/tiny.dpfbin") as package:
        (tmp_path / "revoked.txt").write_text(package.manifest_sha256.hex())

    with pytest.raises(SignatureError, match="this version of the package was revoked"):
        prepare(GOLDEN / "v1/tiny.dpfbin", trust=[tmp_path], allow_unsigned=True)
    assert bound == []


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, signer: Signer | None) -> Installed:
    """tests/golden/v1/signed.dpfbin in a store of the test's own."""
    monkeypatch.setenv("DPFEDGE_STORE", str(folder / "store"))
    judge = SimpleNamespace(accept=lambda package: signer, prove=lambda package: "none")
    return Store().install(GOLDEN / "v1/signed.dpfbin", judge).installed


def test_prepare__takes_the_recorded_signer_of_an_installed_package(
    bound: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without looking at its signature again; but what was revoked since does not run."""
    one = install(tmp_path, monkeypatch, Signer("ab" * 16, "oem"))
    prepared = prepare("signed", trust=[tmp_path])
    assert prepared.located.installed == one
    assert (bound, capsys.readouterr().err) == (["signed"], "")
    for revoked, text in (("ab" * 16, "the key that signed"), (one.manifest_sha256, "this version of the package")):
        (tmp_path / "revoked.txt").write_text(f"{revoked}\n")
        with pytest.raises(SignatureError, match=f"{text}.*was revoked"):
            prepare("signed", trust=[tmp_path], allow_unsigned=True)


def test_prepare__refuses_what_was_installed_unsigned(
    bound: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who allowed it at its install allows it at each start, too."""
    path = install(tmp_path, monkeypatch, None).path
    with pytest.raises(SignatureError) as caught:
        prepare("signed", trust=[tmp_path])
    assert str(caught.value) == (
        f"{path}: the package was installed unsigned; install a signed one, or take --allow-unsigned"
    )
    prepare("signed", trust=[tmp_path], allow_unsigned=True)

    assert capsys.readouterr().err == (
        f"dpfedge: warning: {path}: the package was installed unsigned; it runs all the same, "
        "because unsigned packages are allowed\n"
    )


def test_prepare__says_why_a_start_is_slow(
    bound: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An installed file that was touched is good, and read in full each time."""
    path = install(tmp_path, monkeypatch, Signer("ab" * 16, "oem")).path
    os.utime(path)
    prepare("signed", trust=[tmp_path])

    assert capsys.readouterr().err == (
        f"dpfedge: warning: {path}: changed since it was installed: every byte was checked; install it again, and "
        "starts are fast again\n"
    )


def test_prepare__names_what_it_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, a name, and the nearest one."""
    install(tmp_path, monkeypatch, None)
    with pytest.raises(PackageError) as caught:
        prepare("singed")

    assert str(caught.value) == (
        "singed: there is no such file, and no package of this name is installed; "
        f"allowed signed in {tmp_path / 'store'}, or a file; did you mean signed?"
    )


def test_import__stays_light() -> None:
    """A refusal waits for no numerics."""
    heavy = "{'numpy', 'onnxruntime', 'cryptography'}"
    code = f"import sys, dpfedge.pipeline.prepare as p; sys.exit(str({heavy} & set(sys.modules) or ''))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stderr.strip() == ""


def test_parent_of_stages__is_started_before_anything_is_imported() -> None:
    """Until then one processor works and the others idle; a synchronous runtime takes the same way."""
    code = (
        "import sys\n"
        "from dpfedge.pipeline import parent, prepare\n"
        "from dpfedge.runtime import Runtime\n"
        "def start(own):\n"
        "    heavy = {'asyncio', 'cbor2', 'concurrent.futures', 'dataclasses', 'logging', 'numpy', 'pathlib'}\n"
        "    sys.exit(str(sorted(heavy & set(sys.modules)) or ''))\n"
        "prepare.Zygote = start\n"
        "Runtime.open('x')\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""
