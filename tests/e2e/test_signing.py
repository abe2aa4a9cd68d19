# SPDX-License-Identifier: Apache-2.0
"""Who may serve: a signed package does, an unsigned, wrongly signed or revoked one does not, with these very words."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from dpfedge import Runtime
from dpfedge.errors import SignatureError
from dpfedge.package import open_package
from dpfedge.package.attach import attach
from dpfedge.signing import PrivateKey
from dpfedge.signing.area import Signature, pack_area

Serve = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where copies of the package lie; made once, a copy takes its time."""
    return tmp_path_factory.mktemp("signing")


@pytest.fixture(scope="module")
def unsigned(voice_package: Path, folder: Path) -> Path:
    """The package without its signatures."""
    out = folder / "unsigned.dpfbin"
    with open_package(voice_package, check="fast") as package:
        attach(package, b"", out)
    return out


def serve(package: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`dpfedge serve` of a package that is refused, to its end."""
    command = [sys.executable, "-m", "dpfedge", "serve", str(package), "--port", "0", "--no-socket", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environ})


def resigned(package: Path, signatures: list[Signature], out: Path) -> Path:
    """The package with other signatures."""
    with open_package(package, check="fast") as one:
        attach(one, pack_area(signatures), out)
    return out


def test_serve__a_signed_package_in_silence(server: object, voice_package: Path) -> None:
    """It answers, and says nothing of trust."""
    assert httpx.get(f"{server.url}/v1/models", timeout=30).json()["data"]  # type: ignore[attr-defined]
    assert "warning" not in server.log.read_text()  # type: ignore[attr-defined]
    with open_package(voice_package, check="fast") as package:
        assert len(package.signature()) == 92


def test_serve__an_unsigned_package_is_refused(unsigned: Path) -> None:
    """Exit 4; nothing listened."""
    done = serve(unsigned)

    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == (
        f"dpfedge: {unsigned}: the package is not signed; sign it with a key that is trusted here: "
        f"dpfedge sign {unsigned} --key KEY; or take --allow-unsigned\n"
    )


def test_serve__a_package_signed_by_a_stranger_is_refused(unsigned: Path, folder: Path, demo_key: Path) -> None:
    """Whoever may sign is in a trust directory, not in the package."""
    key, out = PrivateKey.generate(), folder / "stranger.dpfbin"
    key.save(folder / "stranger.key")
    command = [sys.executable, "-m", "dpfedge", "sign", str(unsigned), "--key", str(folder / "stranger.key")]
    subprocess.run([*command, "--out", str(out)], check=True, capture_output=True, timeout=120)
    trust = os.environ["DPFEDGE_TRUST"]
    done = serve(out)

    assert done.returncode == 4
    assert done.stderr == (
        f"dpfedge: {out}: no key that signed the package is trusted here; found key {key.public.key_id}; "
        f"allowed demo in {trust}; put the signer's .pub file into a trust directory, or name one: --trust DIR\n"
    )
    (folder / "trust").mkdir()
    (folder / "trust" / "stranger.pub").write_bytes(key.public.pem())
    done = serve(out, "--trust", str(folder / "trust"), "--board", "none")
    assert done.returncode != 4  # the signature is good now; only the board is not


def test_serve__a_wrongly_signed_package_is_refused(unsigned: Path, folder: Path, demo_key: Path) -> None:
    """The demo's key id over a signature of something else."""
    key = PrivateKey.load(demo_key)
    bad = resigned(unsigned, [Signature(key.public.id, key.sign(b"something else"))], folder / "wrong.dpfbin")
    done = serve(bad)

    assert done.returncode == 4
    assert done.stderr == (
        f"dpfedge: {bad}: wrong signature: the manifest is not what this key signed; "
        f"found demo ({key.public.key_id}); get the package again from who signed it\n"
    )


def test_serve__a_revoked_key_and_a_revoked_version_are_refused(
    voice_package: Path, folder: Path, demo_key: Path
) -> None:
    """The version also where unsigned packages are allowed."""
    trust = folder / "revoking"
    trust.mkdir()
    shutil.copy(Path(os.environ["DPFEDGE_TRUST"]) / "demo.pub", trust)
    revoked, key = trust / "revoked.txt", PrivateKey.load(demo_key).public.key_id
    revoked.write_text(f"# lost on the train\n{key}\n")
    done = serve(voice_package, DPFEDGE_TRUST=str(trust))

    assert done.returncode == 4
    assert done.stderr == (
        f"dpfedge: {voice_package}: the key that signed the package was revoked; found key demo ({key}); "
        f"allowed nothing that {revoked}:2 names; get the package signed anew with another key\n"
    )
    with open_package(voice_package, check="fast") as package:
        digest = package.manifest_sha256.hex()
    revoked.write_text(f"{digest} # answers nonsense\n")
    done = serve(voice_package, "--allow-unsigned", DPFEDGE_TRUST=str(trust))
    assert done.returncode == 4
    assert done.stderr == (
        f"dpfedge: {voice_package}: this version of the package was revoked; found manifest {digest}; "
        f"allowed nothing that {revoked}:1 names; install another version\n"
    )


def test_runtime__refuses_an_unsigned_package(unsigned: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As the command does; allowed, it runs and answers, after one loud line."""
    with pytest.raises(SignatureError, match="the package is not signed"):
        Runtime.open(unsigned, board="host")
    assert "warning" not in capfd.readouterr().err

    with Runtime.open(unsigned, board="host", allow_unsigned=True) as runtime:
        assert sum(len(event.samples) for event in runtime.speak("Hello.") if hasattr(event, "samples")) > 0
    lines = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
    assert lines == [
        f"dpfedge: warning: {unsigned}: the package is not signed; "
        "it runs all the same, because unsigned packages are allowed"
    ]


@pytest.mark.parametrize("verb", [["run", "--audio", __file__], ["talk"], ["bench"]])
def test_other_verbs__refuse_too(unsigned: Path, verb: list[str]) -> None:
    """Exit 4 with the same words."""
    command = [sys.executable, "-m", "dpfedge", verb[0], str(unsigned), *verb[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert "the package is not signed" in done.stderr
    assert done.returncode == 4


@pytest.mark.parametrize(
    ("kind", "says"), [("weights", "section is damaged, its SHA-256 differs"), ("graph", "section is damaged")]
)
def test_serve__other_bytes_than_those_that_were_signed_are_refused(
    voice_package: Path, folder: Path, kind: str, says: str
) -> None:
    """A weight changed behind a right signature; nothing is answered, `--check fast` looks at no weights."""
    changed = folder / f"{kind}.dpfbin"
    shutil.copyfile(voice_package, changed)
    with open_package(changed, check="fast") as package:
        section = next(one for one in package.manifest.sections if one.kind == kind)
        at = section.offset + section.size // 2
    with changed.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x40]))

    done = serve(changed)
    assert done.returncode == 4
    assert f"section '{section.name}'" in done.stderr
    assert says in done.stderr
    assert "dpfedge: ready" not in done.stderr
    changed.unlink()
