# SPDX-License-Identifier: Apache-2.0
"""Which devices of a board may take a model, and what becomes of a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dpfedge.backend.api import ABI
from dpfedge.backend.registry import Registry
from dpfedge.compiler.placing import Chain, Placing, Spot, chain, split_boards, stages_of
from dpfedge.errors import BoardError, Unsupported, UsageError
from dpfedge.hardware.board import VARIABLE, Board, load_board

BOARD = """\
title: a test board
vendor: test
match: {arch: [aarch64]}
devices:
  - {id: gpu, kind: gpu.nvidia, arch: sm_87, backends: [jetson, cuda]}
  - {id: dla, kind: dla.nvidia, arch: nvdla2, backends: [jetson]}
  - {id: cpu, kind: cpu.aarch64, arch: armv8.2-a, backends: [cpu]}
placement:
  decoder: {threads: 1, device: cpu}
  text-detect: {threads: 1, device: [dla, gpu]}
  llm: {threads: 4, device: gpu}
  voice: {threads: 1}
"""


class Named:
    """A fake_plugin: placing asks for names only."""

    version, abi = "1", ABI

    def __init__(self, name: str) -> None:
        self.name = name


def known(*names: str) -> Registry:
    """A registry with plugins of these names."""
    registry = Registry()
    for name in names:
        registry.add(Named(name))  # type: ignore[arg-type]
    return registry


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    """A board with a GPU, a DLA and stages placed on them."""
    (tmp_path / "mine.yaml").write_text(BOARD)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return load_board("mine")


def test_stages_of__names_and_kinds() -> None:
    """A stage is looked up by its name and by its kind; a model may have several stages, or none."""
    stages = {"eyes": {"kind": "text-detect", "model": "d"}, "llm": {"model": "l"}, "again": {"model": "l"}, "x": {}}

    assert stages_of(["d", "l", "lonely"], {"stages": stages}) == {
        "d": ("eyes", "text-detect"), "l": ("llm", "again"), "lonely": (),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("names", "plugins", "demanded", "devices"),
    [
        (("decoder",), ("jetson",), None, [("cpu", "cpu")]),
        (("eyes", "text-detect"), ("jetson",), None, [("dla", "jetson"), ("gpu", "jetson")]),
        (("text-detect",), ("cuda",), None, [("gpu", "cuda")]),
        (("voice",), ("cuda", "jetson"), None, [("gpu", "jetson"), ("cpu", "cpu")]),
        ((), ("cuda",), None, [("gpu", "cuda"), ("cpu", "cpu")]),
        (("voice",), (), None, [("cpu", "cpu")]),
        (("decoder",), ("jetson",), "dla", [("dla", "jetson")]),
        (("llm",), ("jetson",), "cpu", [("cpu", "cpu")]),
    ],
)
def test_chain__what_is_named_is_all(
    board: Board, names: tuple[str, ...], plugins: tuple[str, ...], demanded: str | None, devices: list[Any]
) -> None:
    """The command line before the board file before the preferred accelerator and the CPU."""
    steps = chain(board, "m", names, demanded, known(*plugins))

    assert [(step.device, step.spot.backend) for step in steps] == devices


def test_chain__nothing_that_may_take_it(board: Board) -> None:
    """A device that is demanded and has no plugin, or is not there at all, is an error with the way out."""
    why = r"no installed plugin lowers for gpu, and nothing else may take it \(the board file places llm there\)"
    with pytest.raises(Unsupported, match=f"board mine: model m: {why}; .*pip install dpfedge-jetson or dpfedge-cuda"):
        chain(board, "m", ("llm",), None, known())
    with pytest.raises(BoardError, match="board mine: there is no such device; found npu; allowed gpu, dla, cpu"):
        chain(board, "m", (), "npu", known())


def test_split_boards__one_way_each(board: Board) -> None:
    """A board with a device of its own is one board; asked for in two ways it is a mistake."""
    assert [(one.id, device) for one, device in split_boards(["mine:dla", "host"])] == [("host", None), ("mine", "dla")]
    with pytest.raises(UsageError, match="--board: one board is asked for in two ways; found mine, mine:gpu"):
        split_boards(["mine", "mine:gpu"])


def offered(board: Board, *names: str) -> tuple[Mapping[str, Mapping[str, Chain]], list[Spot]]:
    chains = {"mine": {"m": chain(board, "m", names, None, known("jetson"))}}
    return chains, [step.spot for step in chains["mine"]["m"]]


def test_placing__the_first_that_takes_it(board: Board) -> None:
    """A later device is asked only after a refusal; the CPU's copy of what another device took says nothing."""
    chains, (gpu, cpu) = offered(board, "voice")
    placing = Placing("m", "recipe.yaml:3")

    assert (placing.asks(gpu, chains), placing.asks(cpu, chains)) == (True, True)
    assert placing.depth(gpu, chains) < placing.depth(cpu, chains)
    placing.take(gpu)
    placing.take(cpu)
    assert list(placing.decisions(gpu, chains)) == [
        ("device=gpu", "board mine: the first device of the board that a plugin lowers for")
    ]
    assert list(placing.decisions(cpu, chains)) == []


def test_placing__a_refusal_is_a_decision_with_its_reason(board: Board) -> None:
    """The next device takes it, and the reason is kept without places of the machine that compiled."""
    chains, (gpu, cpu) = offered(board, "voice")
    placing = Placing("m", "/home/me/recipe.yaml:3")
    placing.refuse(gpu, chains, Unsupported("no such operator", where="/home/me/recipe.yaml:3: graph m", found="a\n b"))
    placing.take(cpu)

    assert list(placing.decisions(cpu, chains)) == [
        ("device=cpu, not gpu", "board mine: jetson refuses it: graph m: no such operator; found a; b")
    ]


def test_placing__strict_chains_end_in_an_error(board: Board) -> None:
    """Where neither the DLA nor the GPU takes it and the board file allows nothing else, that is said with the cure."""
    chains, (dla, gpu) = offered(board, "text-detect")
    placing = Placing("m", "r")

    assert (placing.asks(dla, chains), placing.asks(gpu, chains)) == (True, False)
    placing.refuse(dla, chains, Unsupported("no"))
    assert placing.asks(gpu, chains)
    with pytest.raises(Unsupported, match=r"gpu cannot take the model, and nothing else may \(the board file places "
                       r"text-detect there\): never; or place it on \[gpu, cpu\]"):  # fmt: skip
        placing.refuse(gpu, chains, Unsupported("never"))


def test_placing__a_cpu_may_refuse_what_another_device_has(board: Board) -> None:
    """Then there is no fallback for it; a model that nothing took is an error of the CPU's own words."""
    chains, (gpu, cpu) = offered(board, "voice")
    placing = Placing("m", "r")
    placing.take(gpu)
    placing.refuse(cpu, chains, Unsupported("no fp8"))
    placing = Placing("m", "r")
    placing.refuse(gpu, chains, Unsupported("no"))

    with pytest.raises(Unsupported, match=r"^no fp8$"):
        placing.refuse(cpu, chains, Unsupported("no fp8"))
