# SPDX-License-Identifier: Apache-2.0
"""Model files from a web server: a URL in, the bytes in a `.part` file out, going on where an earlier try stopped.

The `.part` file is not trusted here: `cache.place` checks size and SHA-256.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from dpfedge.errors import FetchError
from dpfedge.models.catalogue import File

__all__ = ["download"]

_TIMEOUT_S = 30
_TRIES = 5
_CHUNK_BYTES = 1 << 18
_BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


def download(file: File, part: Path, on_bytes: Callable[[int], None]) -> None:
    """Fill `part` up to the file's size; kept when the connection breaks, so that the next call goes on from there."""
    failure: Exception | None = None
    for _ in range(_TRIES):
        have = part.stat().st_size if part.exists() else 0
        if have == file.nbytes:
            return
        if have > file.nbytes:
            part.unlink()
        try:
            _fetch_rest(file, part, on_bytes)
        except urllib.error.HTTPError as error:
            error.close()
            what = f"the server answers {error.code} {error.reason}"
            remedy = "the address in the catalogue may be old; upgrade dpfedge" if error.code in (404, 410) else None
            raise FetchError(what, where=file.origin, remedy=remedy) from error
        except _BROKEN as error:
            failure = error
    have = part.stat().st_size if part.exists() else 0
    raise FetchError(
        f"the download stopped after {_TRIES} tries", where=file.origin,
        found=f"{have} of {file.nbytes} bytes" + (f", {failure}" if failure else ""),
        remedy="check the network, then pull again: it goes on from here",
    )  # fmt: skip


def _fetch_rest(file: File, part: Path, on_bytes: Callable[[int], None]) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    request = urllib.request.Request(file.origin, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        resumed = answer.status == 206 and str(answer.headers.get("Content-Range", "")).startswith(f"bytes {have}-")
        with part.open("ab" if resumed else "wb") as out:
            _copy(answer, out, file.nbytes, on_bytes)


def _copy(answer: Any, out: BinaryIO, most: int, on_bytes: Callable[[int], None]) -> None:
    """At most one chunk more than wanted is written; the size check of `cache.place` then refuses the file."""
    while out.tell() <= most and (chunk := answer.read(_CHUNK_BYTES)):
        out.write(chunk)
        on_bytes(min(out.tell(), most))
