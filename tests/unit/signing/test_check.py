# SPDX-License-Identifier: Apache-2.0
"""Who signed a package: each state of a signature, each refusal with its text, and every byte that is used."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cbor2
import pytest
import xxhash
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpfedge.errors import DigestError, FormatError, PackageError, SignatureError
from dpfedge.package import Package, cbor, open_package
from dpfedge.package.attach import attach
from dpfedge.package.layout import pack_header, unpack_header
from dpfedge.signing import PrivateKey, Signer, Trust, examine, require_signature, sign_package
from dpfedge.signing.area import Signature, message, pack_area
from dpfedge.signing.check import signatures_of

GOLDEN = Path(__file__).parents[2] / "golden"
LoadTrust = Callable[[], Trust]


def refusal(path: Path, trust: Trust) -> str:
    """The text with which a package is refused for its signatures."""
    with open_package(path) as package, pytest.raises(SignatureError) as caught:
        require_signature(package, trust)
    return str(caught.value)


def opened(path: Path, trust: Trust) -> Signer:
    """The signer of a package that passes the full check and is trusted."""
    with open_package(path) as package:
        return require_signature(package, trust)


def put(path: Path, signatures: list[Signature]) -> None:
    """Give a package another signature area."""
    with open_package(path) as package:
        attach(package, pack_area(signatures), path)


def wrong(package: Package, key: PrivateKey) -> Signature:
    """A signature of `key`, of something else."""
    return Signature(key.public.id, key.sign(message(key.public.id, bytes(package.manifest_bytes()) + b"!")))


def test_golden__opens_for_ever() -> None:
    """Both signers of the golden file are recognised; the first by key id vouches."""
    with open_package(GOLDEN / "v1/signed.dpfbin") as package:
        trust = Trust.load([GOLDEN / "trust"])

        assert [(one.name, one.state) for one in examine(package, trust)] == [
            ("test-supplier", "trusted"), ("test-oem", "trusted"),
        ]  # fmt: skip
        assert require_signature(package, trust) == Signer("06e3fd8fda29bb60ab59557de61edb0a", "test-supplier")


def test_golden__is_plain_cose_sign1() -> None:
    """Checked with a CBOR library and an Ed25519 library only, as any other reader would."""
    data = (GOLDEN / "v1/signed.dpfbin").read_bytes()
    manifest_at, manifest_size, area_at = (struct.unpack_from("<Q", data, place)[0] for place in (24, 32, 40))
    key = Ed25519PublicKey.from_public_bytes(
        bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    )
    protected, unprotected, payload, signature = cbor2.loads(data[area_at:])[0]
    signed = ["Signature1", protected, b"dpfedge.dpfbin.manifest.v1", data[manifest_at : manifest_at + manifest_size]]

    assert (cbor2.loads(protected)[1], unprotected, payload) == (-8, {}, None)
    key.verify(signature, cbor2.dumps(signed))


def test_unsigned__is_refused(package: Path, trust: LoadTrust) -> None:
    """With what to do."""
    assert refusal(package, trust()) == (
        f"{package}: the package is not signed; sign it with a key that is trusted here: "
        f"dpfedge sign {package} --key KEY; or take --allow-unsigned"
    )


def test_trusted__is_named(package: Path, key: PrivateKey, trust: LoadTrust) -> None:
    """By its file's name in the trust directory."""
    sign_package(package, [key])

    assert opened(package, trust()) == Signer(key.public.key_id, "oem")


def test_unknown__is_refused(package: Path, other: PrivateKey, trust: LoadTrust, folder: Path) -> None:
    """With the key that signed and those that are trusted."""
    sign_package(package, [other])

    assert refusal(package, trust()) == (
        f"{package}: no key that signed the package is trusted here; found key {other.public.key_id}; "
        f"allowed oem in {folder}; put the signer's .pub file into a trust directory, or name one: --trust DIR"
    )
    assert "; allowed no key in no trust directory; " in refusal(package, Trust.load(()))


def test_one_trusted_signature__suffices(package: Path, key: PrivateKey, other: PrivateKey, trust: LoadTrust) -> None:
    """Strangers may have signed too."""
    sign_package(package, [other, PrivateKey.generate(), key])

    assert opened(package, trust()).name == "oem"


def test_wrong__is_refused(package: Path, key: PrivateKey, trust: LoadTrust) -> None:
    """A trusted key's id over a signature of something else."""
    with open_package(package) as one:
        put(package, [wrong(one, key)])

    assert refusal(package, trust()) == (
        f"{package}: wrong signature: the manifest is not what this key signed; found oem ({key.public.key_id}); "
        "get the package again from who signed it"
    )


def test_wrong__is_refused_beside_a_right_one(
    package: Path, key: PrivateKey, other: PrivateKey, trust: LoadTrust, folder: Path
) -> None:
    """Nobody makes a wrong signature honestly; one by a stranger says nothing."""
    with open_package(package) as one:
        bad = wrong(one, other)
    sign_package(package, [key])
    with open_package(package) as one:
        good = list(signatures_of(one))
    put(package, [*good, bad])
    assert opened(package, trust()).name == "oem"

    (folder / "supplier.pub").write_bytes(other.public.pem())

    assert "wrong signature" in refusal(package, trust())
    assert f"found supplier ({other.public.key_id})" in refusal(package, trust())


def test_other_context__is_a_wrong_signature(package: Path, key: PrivateKey, trust: LoadTrust) -> None:
    """A signature of the same manifest for another purpose, or without the key id, is no signature of it."""
    key_id = key.public.id
    with open_package(package) as one:
        manifest = bytes(one.manifest_bytes())
        protected = bytes.fromhex("a201270450") + key_id
        for signed in (
            manifest,
            cbor.encode(["Signature1", protected, b"", manifest]),
            cbor.encode(["Signature", protected, b"dpfedge.dpfbin.manifest.v1", manifest]),
            message(bytes(16), manifest),
        ):
            put(package, [Signature(key_id, key.sign(signed))])
            assert "wrong signature" in refusal(package, trust())


def test_revoked_key__counts_for_nothing(
    package: Path, key: PrivateKey, other: PrivateKey, trust: LoadTrust, folder: Path
) -> None:
    """Refused alone; beside a good key the good key vouches. Its signature is not even looked at."""
    (folder / "revoked.txt").write_text(f"# since May\n{key.public.key_id}\n")
    sign_package(package, [key])
    assert refusal(package, trust()) == (
        f"{package}: the key that signed the package was revoked; found key oem ({key.public.key_id}); "
        f"allowed nothing that {folder / 'revoked.txt'}:2 names; get the package signed anew with another key"
    )

    (folder / "supplier.pub").write_bytes(other.public.pem())
    sign_package(package, [other])

    assert opened(package, trust()).name == "supplier"
    with open_package(package) as one:
        assert {found.name: found.state for found in examine(one, trust())} == {"oem": "revoked", "supplier": "trusted"}


def test_revoked_manifest__is_refused_with_good_signatures(
    package: Path, key: PrivateKey, trust: LoadTrust, folder: Path
) -> None:
    """One version of a package is called back; its key stays good."""
    sign_package(package, [key])
    with open_package(package) as one:
        digest = one.manifest_sha256.hex()
    (folder / "revoked.txt").write_text(digest)

    assert refusal(package, trust()).startswith(
        f"{package}: this version of the package was revoked; found manifest {digest}"
    )


def test_exchanged_signature__of_another_package_is_wrong(
    package: Path, tmp_path: Path, key: PrivateKey, trust: LoadTrust
) -> None:
    """The area of a signed package behind another manifest."""
    tiny = Path(shutil.copy(GOLDEN / "v1/tiny.dpfbin", tmp_path / "tiny.dpfbin"))
    sign_package(package, [key])
    with open_package(package) as one, open_package(tiny) as two:
        attach(two, bytes(one.signature()), tiny)

    assert "wrong signature" in refusal(tiny, trust())


def test_malformed_area__is_refused_by_name(package: Path, trust: LoadTrust) -> None:
    """As a broken format, which `--allow-unsigned` does not lift."""
    with open_package(package) as one:
        attach(one, b"\x80", package)
    with open_package(package) as one, pytest.raises(FormatError, match=r"signature area: no signatures in it"):
        require_signature(one, trust())


def test_changed_while_open__is_refused(package: Path, key: PrivateKey, trust: LoadTrust) -> None:
    """The manifest that is used was read before: a signature of what lies there now says nothing of it."""
    sign_package(package, [key])
    with open_package(package) as one, package.open("r+b") as file:
        file.seek(one.header.manifest_offset)
        file.write(b"!")
        file.flush()
        with pytest.raises(DigestError, match="the manifest changed while the package was open"):
            require_signature(one, trust())


# --- every byte that is used is covered ---


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """A copy of the golden signed package."""
    return Path(shutil.copy(GOLDEN / "v1/signed.dpfbin", tmp_path / "s.dpfbin"))


def refused(path: Path, trust: Trust) -> bool:
    """Whether a full check with signatures refuses the file; nothing but a PackageError may come."""
    try:
        opened(path, trust)
    except PackageError:
        return True
    return False


def test_flip__every_byte_before_the_signature_area(signed: Path) -> None:
    """Header, padding around the section, the section, the manifest: whatever byte is changed, it is refused."""
    data, trust = signed.read_bytes(), Trust.load([GOLDEN / "trust"])
    header = unpack_header(data, "s")
    section = range(65536, 65536 + 27)
    places = [*range(128), *range(128, 65536, 1021), 65535, *section, *range(section.stop, header.signature_offset)]
    with signed.open("r+b", buffering=0) as file:
        for place in places:
            file.seek(place)
            file.write(bytes([data[place] ^ 0x41]))
            assert refused(signed, trust), place
            file.seek(place)
            file.write(data[place : place + 1])
    assert opened(signed, trust)


def test_forge__every_byte_of_the_header_with_a_hash_that_fits(signed: Path) -> None:
    """The header's hash protects from accidents only: with it recomputed, each changed byte is refused all the same."""
    data, trust = signed.read_bytes(), Trust.load([GOLDEN / "trust"])
    with signed.open("r+b", buffering=0) as file:
        for place in range(120):
            for mask in (0x01, 0x40, 0x80):
                head = bytearray(data[:120])
                head[place] ^= mask
                file.seek(0)
                file.write(head + struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(head))))
                assert refused(signed, trust), place


def test_forge__a_section_with_digests_that_fit(signed: Path) -> None:
    """Other content, its digests in the manifest, the manifest's in the header: only the signature tells."""
    data, trust = bytearray(signed.read_bytes()), Trust.load([GOLDEN / "trust"])
    header = unpack_header(bytes(data), "s")
    start, end = header.manifest_offset, header.manifest_offset + header.manifest_bytes
    manifest = cbor.decode(bytes(data[start:end]), "m")
    forged = b"these bytes are not so good"
    (section,) = manifest["sections"]
    section |= {"sha256": hashlib.sha256(forged).digest(), "xxh3": xxhash.xxh3_128(forged).digest()}
    data[65536 : 65536 + 27] = forged
    data[start:end] = cbor.encode(manifest)
    data[:128] = pack_header(replace(header, manifest_sha256=hashlib.sha256(data[start:end]).digest()))
    signed.write_bytes(data)

    assert "wrong signature" in refusal(signed, trust)


def test_forge__the_manifest_in_another_place(signed: Path) -> None:
    """The same manifest and signatures, 64 bytes further on: the header has one value for a given manifest."""
    data, trust = signed.read_bytes(), Trust.load([GOLDEN / "trust"])
    header = unpack_header(data, "s")
    moved = replace(
        header, file_bytes=header.file_bytes + 64, manifest_offset=header.manifest_offset + 64,
        signature_offset=header.signature_offset + 64,
    )  # fmt: skip
    cut = header.manifest_offset
    signed.write_bytes(pack_header(moved) + data[128:cut] + bytes(64) + data[cut:])

    with pytest.raises(FormatError, match="manifest does not follow the last section"):
        opened(signed, trust)


def test_area__every_byte_changed_loses_that_signature(signed: Path) -> None:
    """Never a signer who did not sign: a malformed area, a wrong signature, or only the other signer is left."""
    data, trust = signed.read_bytes(), Trust.load([GOLDEN / "trust"])
    start = unpack_header(data, "s").signature_offset
    with signed.open("r+b", buffering=0) as file:
        for place in range(start, len(data)):
            file.seek(place)
            file.write(bytes([data[place] ^ 0x10]))
            hit = "test-supplier" if place - start <= 91 else "test-oem"
            with contextlib.suppress(PackageError):
                assert opened(signed, trust).name != hit
            file.seek(place)
            file.write(data[place : place + 1])


def test_cut__at_every_byte_of_the_area(signed: Path) -> None:
    """With a header that fits: the area is malformed at any length, or empty and the package unsigned."""
    data, trust = signed.read_bytes(), Trust.load([GOLDEN / "trust"])
    header = unpack_header(data, "s")
    for size in range(header.signature_bytes):
        end = header.signature_offset + size
        short = replace(header, file_bytes=end, signature_bytes=size)
        signed.write_bytes(pack_header(short) + data[128:end])
        with pytest.raises(PackageError, match="signature area byte" if size else "the package is not signed"):
            opened(signed, trust)
