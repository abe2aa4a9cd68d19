# SPDX-License-Identifier: Apache-2.0
"""The shipped catalogue is complete; a broken one is refused with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.errors import ConfigError, FetchError
from dpfedge.models.catalogue import catalogue, entry, load_catalogue

GOOD = """\
models:
  m:
    title: t
    licence: MIT
    note: none known
    homepage: h
    source: {kind: url}
    files:
      f: {url: "https://example.org/f", sha256: "%s", bytes: 3}
""" % ("a" * 64)


def test_catalogue__demo_models() -> None:
    """The models of the demo are there, each with a licence and with files that say what they must be."""
    assert set(catalogue()) == {
        "silero-vad", "moonshine-tiny-en", "moonshine-speech-samples", "smollm2-135m-instruct-q4_1", "piper-en-us-joe",
        "ppocr-v6-small-detect", "ppocr-v6-small-read",
    }  # fmt: skip
    for model in catalogue().values():
        assert model.licence
        assert model.source.version
        assert model.nbytes == sum(file.nbytes for file in model.files.values()) > 0


def test_entry__misspelt() -> None:
    """The nearest known name is offered."""
    with pytest.raises(FetchError, match=r"no such model .*; found silero-vda; .*did you mean silero-vad\?"):
        entry("silero-vda")


def test_load__url_source(tmp_path: Path) -> None:
    """Files of a URL source carry their address."""
    path = tmp_path / "c.yaml"
    path.write_text(GOOD)

    assert load_catalogue(path)["m"].files["f"].origin == "https://example.org/f"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: url", "kind: ftp", "c.yaml:7: unknown kind of source; found ftp"),
        ("https://example.org/f", "file:///etc/passwd", "c.yaml:9: unknown kind of URL"),
        ("a" * 64, "a" * 63, "c.yaml:9: not a SHA-256"),
        ("      f: ", "      ../f: ", "c.yaml:9: bad name"),
        ("  m:\n", "  .m:\n", "c.yaml:2: bad name"),
        ("    licence: MIT\n", "", "licence is missing or of a wrong type"),
        ("bytes: 3", "bytes: many", "c.yaml:9: bytes is missing or of a wrong type; found 'many'; allowed int"),
    ],
)
def test_load__refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    """File, line, what was found and what is allowed."""
    path = tmp_path / "c.yaml"
    path.write_text(GOOD.replace(old, new))

    with pytest.raises(ConfigError) as caught:
        load_catalogue(path)
    assert message in str(caught.value)
