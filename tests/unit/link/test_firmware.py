# SPDX-License-Identifier: Apache-2.0
"""The firmware's made files and documents against its code; the ear itself, called from Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FIRMWARE = Path(__file__).parents[3] / "firmware_bridge" / "firmware"
RPMSG_BUFFER, RPMSG_HEADER = 512, 16


def _numbers(header: str) -> dict[str, int]:
    text = (FIRMWARE / header).read_text("utf-8")
    return {name: int(value, 0) for name, value in re.findall(r"\b(DPF_FW_\w+) = (0x[0-9a-fA-F]+|\d+)\b", text)}


def test_tables__are_what_their_formulas_make() -> None:
    """tables.h is not edited by hand."""
    made = subprocess.run(
        [sys.executable, str(FIRMWARE / "enrol" / "make_tables.py")], capture_output=True, text=True, check=True
    )
    assert made.stdout == (FIRMWARE / "tables.h").read_text("utf-8")


def test_frames__fit_an_rpmsg_buffer_exactly() -> None:
    """496 bytes: what is left of 512 behind rpmsg's own header."""
    numbers = _numbers("rpmsg.h")
    assert numbers["DPF_FW_RPMSG_BYTES"] == RPMSG_BUFFER - RPMSG_HEADER
    items, rest = divmod(numbers["DPF_FW_RPMSG_BYTES"] - numbers["DPF_FW_RPMSG_HEAD"], numbers["DPF_FW_RPMSG_ITEM"])
    assert (items, rest) == (12, 0)
    porting = (FIRMWARE / "PORTING.md").read_text("utf-8")
    assert "A frame is 16 bytes and at\n  most 12 descriptors of 40: exactly 496." in porting


def test_bridge__lends_no_more_than_a_core_keeps() -> None:
    """Whatever the bridge hands over has a place in the core, and its answer too."""
    core, bridge = _numbers("link_rpmsg.h"), _numbers("bridge.h")
    kinds = ("PLACES", "SOUNDS", "EVENTS")
    assert all(core[f"DPF_FW_{kind}"] == bridge[f"DPF_FW_BRIDGE_{kind}"] for kind in kinds)
    assert core["DPF_FW_OUT"] >= sum(core[f"DPF_FW_{kind}"] for kind in kinds)


def test_ear__hears_its_own_templates_and_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """phrases.h as it is: each template is heard once as its phrase; noise is nothing."""
    if shutil.which("cc") is None:
        pytest.skip("the ear cannot be built here: no cc")
    monkeypatch.syspath_prepend(str(FIRMWARE / "enrol"))
    import ear as module
    from measure import load

    ear, phrases = module.Ear(), load(FIRMWARE / "phrases.h")
    for template in phrases.templates:
        heard, _, _ = ear.listen(template.frames, phrases)
        assert [phrase for _, phrase in heard] == [template.phrase]
    noise = np.random.default_rng(3).normal(0, 2000, 16_000 * 5).astype(np.int16)
    assert ear.listen(ear.frames(noise)[0], phrases)[0] == []


def test_documents__name_what_there_is() -> None:
    """Every file that README.md and PORTING.md name in backquotes exists."""
    for document in ("README.md", "PORTING.md"):
        for name in re.findall(
            r"`((?:host/|src/|enrol/|tests/)?[\w/]+\.[chm][dk]?)`", (FIRMWARE / document).read_text("utf-8")
        ):
            places = (
                FIRMWARE / name,
                FIRMWARE.parent / name,
                FIRMWARE.parent / "include" / name,
                FIRMWARE.parents[1] / name,
            )
            assert any(place.exists() for place in places), (document, name)
