# SPDX-License-Identifier: Apache-2.0
"""Text in, phoneme ids out, exactly as piper-tts makes them; it synthesises nothing.

Phonemes come from espeak-ng through the `espeakbridge` module of piper-tts (GPL, the optional extra `dpfedge[voice]`).
Only that module is loaded: importing `piper` itself would take 0.4 s and load its own runtime.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import threading
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfedge.errors import ModelError, Unavailable

__all__ = ["Phonemes"]

_REMEDY = "install the extra: pip install 'dpfedge[voice]'"
_LANGUAGE_SWITCH = re.compile(r"\([^)]+\)")
_LOCK = threading.Lock()  # espeak-ng keeps one voice per process in global memory
_BRIDGE: dict[str, Any] = {}


def _bridge() -> Any:
    """piper's espeakbridge, initialised once in this process; Unavailable when piper-tts is not installed."""
    if "espeak" not in _BRIDGE:
        spec = importlib.util.find_spec("piper")
        folder = Path(next(iter(spec.submodule_search_locations or ()), "")) if spec else None
        if folder is None or not (folder / "espeak-ng-data").is_dir():
            raise Unavailable("piper-tts is not installed", where="stage voice", remedy=_REMEDY)
        module = _load(folder)
        module.initialize(str(folder / "espeak-ng-data"))
        _BRIDGE["espeak"] = module
    return _BRIDGE["espeak"]


def _load(folder: Path) -> Any:
    found = [folder / f"espeakbridge{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    path = next((path for path in found if path.is_file()), None)
    if path is None:
        raise Unavailable("piper-tts has no espeakbridge", where="stage voice", found=str(folder), remedy=_REMEDY)
    spec = importlib.util.spec_from_file_location("espeakbridge", path)
    if spec is None or spec.loader is None:
        raise Unavailable("espeakbridge cannot be loaded", where="stage voice", found=str(path), remedy=_REMEDY)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise Unavailable(
            "espeakbridge cannot be loaded", where="stage voice", found=str(error), remedy=_REMEDY
        ) from error
    return module


class Phonemes:
    """The phonemiser of one voice: an espeak-ng voice name and the model's table of phoneme → ids."""

    def __init__(self, voice: str, table: Mapping[str, Sequence[int]]) -> None:
        missing = [mark for mark in "^$_" if mark not in table]
        if missing:
            raise ModelError(
                "phoneme_id_map lacks marks", where="stage voice", found=", ".join(missing), allowed="^ $ _"
            )
        self._voice = voice
        self._table = {phoneme: tuple(int(number) for number in ids) for phoneme, ids in table.items()}
        self._first, self._pad, self._end = (self._table[mark] for mark in "^_$")

    def warm(self) -> None:
        """Load espeak-ng and the voice; Unavailable or ModelError says what is missing."""
        self.sentences("ready")

    def sentences(self, text: str) -> list[list[str]]:
        """Phonemes of each sentence espeak-ng finds in `text`, as NFD code points with their punctuation."""
        done: list[list[str]] = []
        current: list[str] = []
        for spoken, mark, ends in self._clauses(text):
            spoken = _LANGUAGE_SWITCH.sub("", spoken) + mark + (" " if mark in (",", ":", ";") else "")
            current.extend(unicodedata.normalize("NFD", spoken))
            if ends:
                done.append(current)
                current = []
        return [sentence for sentence in [*done, current] if sentence]

    def _clauses(self, text: str) -> list[tuple[str, str, bool]]:
        with _LOCK:
            bridge = _bridge()
            try:
                bridge.set_voice(self._voice)
            except RuntimeError as error:
                raise ModelError("espeak-ng lacks this voice", where="stage voice", found=self._voice) from error
            clauses: list[tuple[str, str, bool]] = bridge.get_phonemes(text)
            return clauses

    def ids(self, phonemes: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """i64[1, t]: `^ _` then each known phoneme and `_`, then `$`; phonemes the model never learnt are left out."""
        numbers = [*self._first, *self._pad]
        for phoneme in phonemes:
            known = self._table.get(phoneme)
            if known is not None:
                numbers.extend(known)
                numbers.extend(self._pad)
        numbers.extend(self._end)
        return np.array([numbers], dtype=np.int64)
