# SPDX-License-Identifier: Apache-2.0
"""A multipart form that is still arriving: its fields, and the bytes of its one file, piece by piece as they come.

It keeps no file in memory or on disk, and believes neither the file's name nor its content type.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from dpfedge.limits import FORM_FIELD_MAX_BYTES, FORM_FIELDS_MAX
from dpfedge.serve.errors import ClientGone, RequestError

__all__ = ["Upload"]


class Upload:
    """The form of one request. Read `fields_before_file`, then `file`, then `fields` holds everything."""

    def __init__(self, request: Request) -> None:
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary:
            raise RequestError(
                "the body is not a form",
                where="request",
                found=kind.decode("latin-1") or "no content type",
                allowed="multipart/form-data with a boundary",
                code="invalid_form",
            )
        self.fields: dict[str, list[str]] = {}
        self.error: Exception | None = None
        """Why the upload broke off, if it did."""
        self._finished = asyncio.Event()
        self._request = request
        self._body = request.stream()
        self._name, self._header, self._disposition = "", "", ""
        self._value = bytearray()
        self._pieces: deque[bytes] = deque()
        self._in_file = self._file_seen = self._form_ended = False
        self._count = 0
        self._parser = self._make_parser(boundary)

    def _make_parser(self, boundary: bytes) -> MultipartParser:
        def header_field(data: bytes, start: int, end: int) -> None:
            self._header += data[start:end].decode("latin-1").lower()

        def header_value(data: bytes, start: int, end: int) -> None:
            if self._header == "content-disposition":
                self._disposition += data[start:end].decode("latin-1")

        def header_end() -> None:
            self._header = ""

        callbacks = {
            "on_part_begin": self._part_begin,
            "on_header_field": header_field,
            "on_header_value": header_value,
            "on_header_end": header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._part_data,
            "on_part_end": self._part_end,
            "on_end": self._form_end,
        }
        try:
            return MultipartParser(boundary, callbacks)  # type: ignore[arg-type]
        except FormParserError as error:
            raise self._broken(str(error)) from error

    def _part_begin(self) -> None:
        self._count += 1
        self._header = self._disposition = ""
        self._value.clear()
        if self._count > FORM_FIELDS_MAX:
            raise self._broken(f"more than {FORM_FIELDS_MAX} parts")

    def _headers_finished(self) -> None:
        kind, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        if kind != b"form-data" or not self._name:
            raise self._broken("a part has no name")
        self._in_file = self._name == "file"
        if self._in_file and self._file_seen:
            raise self._broken("a second part named 'file'")
        self._file_seen = self._file_seen or self._in_file

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._pieces.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > FORM_FIELD_MAX_BYTES:
            raise self._broken(f"field {self._name!r} is longer than {FORM_FIELD_MAX_BYTES} bytes")

    def _part_end(self) -> None:
        if self._in_file:
            self._in_file = False
            return
        try:
            value = self._value.decode()
        except UnicodeDecodeError as error:
            raise self._broken(f"field {self._name!r} is not UTF-8") from error
        self.fields.setdefault(self._name, []).append(value)

    def _form_end(self) -> None:
        self._form_ended = True

    def _broken(self, what: str) -> RequestError:
        what = f"the form is broken: {what}"
        return RequestError(what, where="request", allowed="multipart/form-data", code="invalid_form")

    async def _more(self) -> bool:
        """Parse the next piece of the body; False at its end."""
        try:
            data = await anext(self._body, b"")
            if data:
                self._parser.write(data)
                return True
            if not self._form_ended:
                raise self._broken("it ends before its last boundary")
        except ClientDisconnect as gone:
            self.error = ClientGone("the client left while it sent the file", where="request")
            raise self.error from gone
        except FormParserError as error:
            self.error = self._broken(str(error))
            raise self.error from error
        except RequestError as error:
            self.error = error
            raise
        self._finished.set()
        return False

    async def fields_before_file(self) -> dict[str, list[str]]:
        """Read up to the file; the fields that came before it. RequestError when the form has no file."""
        while not self._file_seen:
            if not await self._more():
                raise RequestError(
                    "parameter 'file' is missing", where="request", param="file", code="missing_required_parameter"
                )
        return self.fields

    async def file(self) -> AsyncIterator[bytes]:
        """The file's bytes as they arrive; after its end the rest of the form has been read."""
        empty = True
        while True:
            while self._pieces:
                empty = False
                yield self._pieces.popleft()
            if not await self._more():
                break
        if empty:
            self.error = RequestError("the file is empty", where="file", found="0 bytes", allowed="audio", param="file")
            raise self.error

    @property
    def finished(self) -> bool:
        """Whether the whole form has arrived."""
        return self._finished.is_set()

    async def left(self) -> None:
        """Return when the client closed its connection after it had sent everything."""
        await self._finished.wait()
        while (await self._request.receive())["type"] != "http.disconnect":
            continue
