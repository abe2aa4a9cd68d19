# SPDX-License-Identifier: Apache-2.0
"""`dpfedge inspect` shows the golden package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpfedge.cli import main
from dpfedge.package import PackageWriter

TINY = str(Path(__file__).parents[2] / "golden/v1/tiny.dpfbin")


def test_inspect__summary(capsys: pytest.CaptureFixture[str]) -> None:
    """Sections, models, targets and licences are there."""
    assert main(["inspect", TINY]) == 0

    out = capsys.readouterr().out
    assert "tiny 1.0.0, format 1.0, 263552 bytes" in out
    assert "weights/tiny-llm     weights         65536          8896" in out
    assert "tiny-llm: llama, Apache-2.0" in out
    assert "and(class(cpu.x86_64), arch(x86-64-v3), not(board(orin)))" in out


def test_inspect__who_signed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the name; nobody is a line too."""
    monkeypatch.setenv("DPFEDGE_TRUST", str(Path(TINY).parents[1] / "trust"))
    assert main(["inspect", TINY]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "no signature"
    assert main(["inspect", TINY.replace("tiny", "signed")]) == 0
    assert "signature of test-oem (deb2ded39dc26fce0e6085b6fc34bf6b): trusted" in capsys.readouterr().out


def test_inspect__targets(capsys: pytest.CaptureFixture[str]) -> None:
    """Each decision comes with its rule."""
    assert main(["inspect", TINY, "--targets"]) == 0

    out = capsys.readouterr().out
    assert "keep q4_1 blocks  because  the CPU has no fp8" in out
    assert "in  input_ids i64[1,tokens]" in out


def test_inspect__json(capsys: pytest.CaptureFixture[str]) -> None:
    """The whole manifest is JSON with digests in hexadecimal."""
    assert main(["inspect", TINY, "--json"]) == 0

    value = json.loads(capsys.readouterr().out)
    assert value["targets"][0]["models"]["tiny-llm"]["graphs"]["step"]["options"] == {"threads": 2}
    assert len(value["sections"][0]["sha256"]) == 64


def test_inspect__not_a_package(capsys: pytest.CaptureFixture[str]) -> None:
    """Another file is refused with exit code 4."""
    assert main(["inspect", __file__]) == 4
    assert "header byte 0: not a dpfedge package" in capsys.readouterr().err


def test_inspect__sbom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bill of materials comes out as it lies in the package; one that has none says so."""
    path = tmp_path / "with.dpfbin"
    with PackageWriter(path, name="with", version="1") as writer:
        writer.add("sbom.cdx.json", "licence", b'{"bomFormat": "CycloneDX"}\n')
        writer.finish({})

    assert main(["inspect", str(path), "--sbom"]) == 0
    assert json.loads(capsys.readouterr().out) == {"bomFormat": "CycloneDX"}
    assert main(["inspect", TINY, "--sbom"]) == 4
    assert "the package has no bill of materials" in capsys.readouterr().err


def test_inspect__obeys_nothing_that_a_package_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What no reader looked into reaches no terminal as it is: the compiler's map, the bill of materials."""
    path = tmp_path / "bad.dpfbin"
    with PackageWriter(path, name="bad", version="1") as writer:
        writer.add("sbom.cdx.json", "licence", b'{"x": "\x1b[2J"}\n')
        writer.finish({"compiler": {"name": "\x1b[31mred\nmodels:", "libraries": [1]}})

    assert main(["inspect", str(path), "--sbom"]) == 4
    assert capsys.readouterr() == (
        "", f"dpfedge: {path}: sbom.cdx.json: a character that is not allowed; found '\\x1b' at character 7\n"
    )  # fmt: skip
    assert main(["inspect", str(path)]) == 0
    assert "compiler: name ?[31mred?models:, libraries [1]\n" in capsys.readouterr().out


def test_inspect__sidecar_and_prefix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sidecar shows what it was built for; a baked opening what its numbers depend on."""
    path = tmp_path / "x.dpfbin.dpfseal"
    memory = {"past": {"offset": 0, "size": 1, "dtype": "u8", "dims": [1]}}
    prefix = {"section": "prefix", "key": {"device/arch": "x86-64-v3"}, "tokens": [1, 2], "memory": memory}
    built = {"model": "llm", "graph": "step", "name": "packed", "section": "sealed"}
    with PackageWriter(path, name="with", version="1") as writer:
        writer.add("prefix", "prefix", b"p")
        writer.add("sealed", "sealed", b"s")
        seal = {
            "package": bytes(32), "target": "t", "backend": "cpu", "device": {"arch": "x86-64-v3"}, "driver": "d 1",
            "libraries": {"onnxruntime": "1.32.0"}, "built": [built], "prefixes": {"llm": prefix},
        }  # fmt: skip
        target = {
            "id": "t", "backend": "cpu", "backend_abi": 1, "whitelist": ["board", "host"], "memory_bytes": 1,
            "decisions": [], "models": {"llm": {"graphs": {}, "prefix": prefix}},
        }  # fmt: skip
        model = {"family": "llama", "licence": "MIT", "source": "test"}
        writer.finish({"seal": seal, "models": {"llm": model}, "targets": [target]})

    assert main(["inspect", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:8] == [
        "seal of package 0000000000000000, target t, backend cpu", "  device/arch: x86-64-v3",
        "  library/onnxruntime: 1.32.0", "  driver: d 1", "  built packed of llm.step: sealed",
        "  prefix of llm: 2 tokens",
    ]  # fmt: skip
    assert main(["inspect", str(path), "--targets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["  llm: prefix of 2 tokens in prefix", "    device/arch: x86-64-v3"]


@pytest.mark.parametrize("flag", ["--targets", "--sbom"])
def test_inspect__what_a_pipeline_file_has_not(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not ignored."""
    assert main(["inspect", "p.yaml", flag]) == 2
    assert f"{flag}: a pipeline file has none; found p.yaml; allowed a package" in capsys.readouterr().err
