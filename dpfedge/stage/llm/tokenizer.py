# SPDX-License-Identifier: Apache-2.0
"""Text to token ids and back, also token by token; it applies no chat template and adds no token by itself.

The ids are those of the Hugging Face `tokenizers` library for the package's `tokenizer.json`: the library computes
them, or tables of which the compiler proved that they give the same.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

from dpfedge.errors import ModelError
from dpfedge.vocabulary import Vocabulary, byte_alphabet

__all__ = ["Detokeniser", "Library", "Tokenizer"]

_REPLACEMENT = "\ufffd"


class Detokeniser(Protocol):
    """One answer's token ids in, the text each adds out; all of it joined equals decoding all ids at once."""

    def push(self, token: int) -> str:
        """The text that is certain now; a character whose bytes are spread over tokens comes with its last token."""

    def finish(self) -> str:
        """What was held back; incomplete bytes become U+FFFD as in decoding all ids at once."""


class Tokenizer:
    """The tokenizer of one model."""

    def __init__(self, engine: Library | Vocabulary) -> None:
        self._engine = engine
        self.specials, self.size = engine.specials, engine.size

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; the texts of special tokens in it become those tokens."""
        return self._engine.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens` without special tokens."""
        if isinstance(self._engine, Library):
            return self._engine.decode(tokens)
        return b"".join(map(self._engine.bytes_of, tokens)).decode("utf-8", "replace")

    def detokeniser(self) -> Detokeniser:
        """For one answer."""
        if isinstance(self._engine, Library) and not self._engine.by_bytes:
            return _Window(self)
        return _Bytes(self._engine.bytes_of)


class Library:
    """A `tokenizer.json`, read by Hugging Face's library: 60 ms and 30 MB for a vocabulary of 49,000 tokens."""

    def __init__(self, data: bytes | memoryview) -> None:
        from tokenizers import Tokenizer as Inner  # who has tables needs none of it
        from tokenizers.decoders import ByteLevel

        try:
            self._inner = Inner.from_buffer(bytes(data))
        except Exception as error:  # the library raises plain Exception for any fault of the file
            raise ModelError("tokenizer.json cannot be read", where="asset tokenizer.json", found=str(error)) from error
        added = self._inner.get_added_tokens_decoder()
        self.specials = {token.content: number for number, token in added.items() if token.special}
        self.size = self._inner.get_vocab_size(with_added_tokens=True)
        self.by_bytes = isinstance(self._inner.decoder, ByteLevel)
        self._alphabet = byte_alphabet()
        self._known: dict[int, bytes] = {}

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer`."""
        return list(self._inner.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """See `Tokenizer`."""
        return str(self._inner.decode(list(tokens), skip_special_tokens=True))

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token id; special tokens have none. Looked up when said: most of a vocabulary never is."""
        if token not in self._known:
            text = self._inner.id_to_token(token) or ""
            known = all(char in self._alphabet for char in text)
            data = bytes(self._alphabet[char] for char in text) if known else text.encode()
            self._known[token] = b"" if text in self.specials else data
        return self._known[token]


class _Bytes:
    """Byte-level vocabularies: bytes go through an incremental UTF-8 decoder."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(self._bytes_of(token))

    def finish(self) -> str:
        return self._decoder.decode(b"", True)


class _Window:
    """Any other vocabulary: decode a window of the last tokens with and without the new one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._start = self._shown = 0

    def push(self, token: int) -> str:
        self._tokens.append(token)
        return self._emit(final=False)

    def finish(self) -> str:
        return self._emit(final=True)

    def _emit(self, *, final: bool) -> str:
        decode = self._tokenizer.decode
        before = decode(self._tokens[self._start : self._shown])
        now = decode(self._tokens[self._start :])
        if not final and (now.endswith(_REPLACEMENT) or len(now) <= len(before)):
            return ""
        # The window starts one emission back, so that a leading space that depends on the token before stays.
        self._start, self._shown = self._shown, len(self._tokens)
        return now[len(before) :]
