# SPDX-License-Identifier: Apache-2.0
"""A form is read while it arrives, wherever it is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import Request

from dpfedge.limits import FORM_FIELD_MAX_BYTES, FORM_FIELDS_MAX
from dpfedge.serve.errors import ClientGone, RequestError
from dpfedge.serve.http.upload import Upload

SOUND = bytes(range(256)) * 3


def part(name: str, data: bytes, extra: str = "") -> bytes:
    return b'--cut\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % (name.encode(), extra.encode(), data)


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--cut--\r\n"


FILE = part("file", SOUND, '; filename="../../etc/passwd"')


def upload(body: bytes, step: int = 1 << 20, leaves: bool = False) -> Upload:
    pieces = [body[at : at + step] for at in range(0, len(body), step)]

    async def receive() -> dict[str, Any]:
        if not pieces:
            return {"type": "http.disconnect"} if leaves else {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.request", "body": pieces.pop(0), "more_body": True}

    kind = [(b"content-type", b"multipart/form-data; boundary=cut")]
    return Upload(Request({"type": "http", "method": "POST", "headers": kind}, receive))


def read(one: Upload) -> tuple[dict[str, list[str]], bytes]:
    """The fields before the file, and the file."""

    async def work() -> tuple[dict[str, list[str]], bytes]:
        before = {name: list(values) for name, values in (await one.fields_before_file()).items()}
        return before, b"".join([piece async for piece in one.file()])

    return asyncio.run(work())


@pytest.mark.parametrize("step", [1, 7, 64, 1 << 20])
def test_form__is_the_same_wherever_it_is_cut(step: int) -> None:
    """Fields before and behind the file, a name given twice, and every byte of the file."""
    body = form(part("model", b"ear"), part("x", b"1"), FILE, part("x", "zwölf".encode()))
    one = upload(body, step)

    before, data = read(one)
    assert (before["model"], before["x"][0]) == (["ear"], "1")
    assert data == SOUND
    assert one.fields == {"model": ["ear"], "x": ["1", "zwölf"]}
    assert one.finished


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (form(part("model", b"x")), "'file' is missing"),
        (form(part("file", b"")), "the file is empty"),
        (form(FILE, FILE), "a second part named 'file'"),
        (form(FILE)[:-9], "it ends before its last boundary"),
        (form(part("", b"x"), FILE), "a part has no name"),
        (form(part("x", b"\xff"), FILE), "not UTF-8"),
        (form(part("x", b"y" * (FORM_FIELD_MAX_BYTES + 1)), FILE), "is longer than"),
        (form(*[part("x", b"")] * FORM_FIELDS_MAX, FILE), f"more than {FORM_FIELDS_MAX} parts"),
        (b"no form at all", "the form is broken"),
    ],
)
def test_form__that_is_wrong_is_a_400(body: bytes, text: str) -> None:
    """With the reason."""
    with pytest.raises(RequestError, match=text) as caught:
        read(upload(body))
    assert caught.value.http_status == 400


def test_form__of_a_client_that_leaves() -> None:
    """The error stays with the upload, for whoever cleans up."""
    one = upload(form(FILE)[:-30], leaves=True)
    with pytest.raises(ClientGone):
        read(one)
    assert isinstance(one.error, ClientGone)
    assert not one.finished


@pytest.mark.parametrize("kind", [b"", b"application/json", b"multipart/form-data"])
def test_body__that_is_no_form(kind: bytes) -> None:
    """Refused before anything is read."""

    async def never() -> Any:
        raise AssertionError

    make: Callable[[], Upload] = lambda: Upload(  # noqa: E731
        Request({"type": "http", "method": "POST", "headers": [(b"content-type", kind)]}, never)
    )
    with pytest.raises(RequestError, match="the body is not a form"):
        make()
