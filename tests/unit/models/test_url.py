# SPDX-License-Identifier: Apache-2.0
"""Downloads from a web server go on where they stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import FetchError
from dpfedge.models import url
from dpfedge.models.catalogue import CatalogueModel, File

DATA = bytes(range(256)) * 40


@pytest.fixture
def file(url_models: Mapping[str, CatalogueModel]) -> File:
    """The larger file on the server."""
    return url_models["web"].files["weights.bin"]


def test_download__resumes_after_a_break(server: Any, file: File, tmp_path: Path) -> None:
    """After a broken connection only the rest is asked for, and progress never goes back."""
    server.breaks = 2
    heard: list[int] = []
    url.download(file, tmp_path / "part", heard.append)

    assert (tmp_path / "part").read_bytes() == DATA
    assert server.asked == [None, "bytes=1000-", "bytes=2000-"]
    assert heard == sorted(heard)
    assert heard[-1] == len(DATA)


def test_download__server_without_ranges(server: Any, file: File, tmp_path: Path) -> None:
    """A server that ignores Range sends all of it again, and the file is not doubled."""
    server.breaks, server.ranges = 1, False
    url.download(file, tmp_path / "part", lambda done: None)

    assert (tmp_path / "part").read_bytes() == DATA


def test_download__gives_up_and_keeps_what_came(server: Any, file: File, tmp_path: Path) -> None:
    """After several tries the error says how far it got; the next call goes on from there."""
    server.breaks = 5
    with pytest.raises(FetchError, match="the download stopped after 5 tries; found 5000 of 10240 bytes"):
        url.download(file, tmp_path / "part", lambda done: None)
    url.download(file, tmp_path / "part", lambda done: None)

    assert (tmp_path / "part").read_bytes() == DATA
    assert server.asked[-1] == "bytes=5000-"


def test_download__not_found(server: Any, tmp_path: Path) -> None:
    """The server's own refusal is final and is quoted."""
    with pytest.raises(FetchError, match=r"/nothing: the server answers 404 Not Found; .*upgrade dpfedge"):
        url.download(File("nothing", server.url("nothing"), "", 5), tmp_path / "part", lambda done: None)
    assert len(server.asked) == 1


def test_download__nobody_listens(file: File, tmp_path: Path, server: Any) -> None:
    """A server that is not there is a FetchError with the reason."""
    gone = File(file.name, "http://127.0.0.1:9/x", file.sha256, file.nbytes)
    with pytest.raises(FetchError, match=r"found 0 of 10240 bytes, .*refused"):
        url.download(gone, tmp_path / "part", lambda done: None)
