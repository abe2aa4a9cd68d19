# SPDX-License-Identifier: Apache-2.0
"""Boards: reading, choosing and refusing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.errors import BoardError, ConfigError
from dpfedge.hardware.board import VARIABLE, board_files, boards, find_board, load_board, match_board, read_board
from dpfedge.hardware.probe import probe

Record = Callable[[str], Path]

BOARD = """\
title: a test board
vendor: test
match: {pci: ["1234:5678"], arch: [x86_64]}
devices:
  - {id: gpu, kind: gpu.nvidia, arch: sm_99, memory: 2GiB, features: [fp16], backends: [cuda]}
memory: 3GiB
bandwidth: 10GB/s
placement: {llm: {threads: 2, cores: [0, 1], nice: -5, spin: 20us}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of more boards, named in the environment."""
    place = tmp_path / "my boards"
    place.mkdir()
    monkeypatch.setenv(VARIABLE, str(place))
    return place


def test_board__is_read(folder: Path) -> None:
    """Units become numbers, a spin becomes nanoseconds."""
    (folder / "mine.yaml").write_text(BOARD)

    board = load_board("mine")
    assert (board.id, board.title, board.memory_bytes, board.bandwidth) == ("mine", "a test board", 3 << 30, 10**10)
    assert board.placement == {"llm": {"threads": 2, "cores": [0, 1], "nice": -5, "spin_ns": 20000}}
    device = board.devices[0]
    assert (device.kind, device.arch, device.memory_bytes, device.features) == (
        "gpu.nvidia", "sm_99", 2 << 30, frozenset({"fp16"}),
    )  # fmt: skip


def test_board__names_what_a_plugin_of_anybody_runs_on(folder: Path) -> None:
    """Backends and NPUs that dpfedge has not heard of: a vendor writes a plugin and a board file, and no more."""
    text = BOARD.replace("gpu.nvidia", "npu.acme").replace("[cuda]", "[acme-npu, cuda]")
    (folder / "mine.yaml").write_text(text)

    device = load_board("mine").devices[0]
    assert (device.kind, device.backends) == ("npu.acme", ("acme-npu", "cuda"))


def test_board__places_stages_in_threads_and_real_time(folder: Path) -> None:
    """As they stand; where they may be followed is found out where the stage starts."""
    (folder / "mine.yaml").write_text(BOARD.replace("nice: -5", "fifo: 50, isolation: thread"))

    place = load_board("mine").placement["llm"]
    assert (place["fifo"], place["isolation"]) == (50, "thread")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("memory: 3GiB", "memory: 3", "mine.yaml:6: memory: the unit is missing; found 3"),
        ("memory: 3GiB", "memroy: 3GiB", "mine.yaml:6: unknown key 'memroy'"),
        ("memory: 3GiB", "memory: 3gib", "write 3GiB"),
        ("kind: gpu.nvidia", "kind: gpu.nvida", "mine.yaml:5: devices[0].kind: unknown value; found 'gpu.nvida'"),
        ("kind: gpu.nvidia", "kind: gpu.nvida", "did you mean gpu.nvidia?"),
        ("kind: gpu.nvidia", "kind: npu", "found 'npu'; allowed cpu, cpu.aarch64"),
        ("[cuda]", "[CUDA]", "devices[0].backends[0]: wrong form; found 'CUDA'"),
        ("llm: {", "lllm: {", "did you mean llm?"),
        ("nice: -5", "fifo: 100", "placement.llm.fifo: out of range"),
        ("nice: -5", "isolation: threads", "did you mean thread?"),
        ("threads: 2", "threads: two", "placement.llm.threads: wrong type; found string 'two'; allowed integer"),
        ("threads: 2, ", "", "placement.llm: key 'threads' is missing; add threads:"),
        ("1234:5678", "1234", "match.pci[0]: wrong form; found '1234'"),
        ("vendor: test\n", "", "key 'vendor' is missing"),
        ("20us", "20", "spin: the unit is missing"),
        (
            "[x86_64]",
            "[x86]",
            "match.arch[0]: unknown value; found 'x86'; allowed aarch64, x86_64; did you mean x86_64?",
        ),
    ],
)
def test_board__refusal_names_line_and_word(tmp_path: Path, old: str, new: str, words: str) -> None:
    """A mistake is named with file, line, what is allowed and the nearest word."""
    path = tmp_path / "mine.yaml"
    assert old in BOARD
    path.write_text(BOARD.replace(old, new))

    with pytest.raises(ConfigError) as caught:
        read_board(path)
    assert words in str(caught.value)


def test_files__extra_folder_wins(folder: Path) -> None:
    """A board of the operator replaces the installed one of the same id; files that start with _ or . are none."""
    (folder / "orin.yaml").write_text(BOARD)
    (folder / "_draft.yaml").write_text("")
    (folder / ".hidden.yaml").write_text("")

    files = board_files()
    assert files["orin"].parent == folder
    assert "host" in files
    assert not {"_draft", ".hidden", "_schema"} & set(files)


def test_files__missing_extra_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is not there is an error, not an empty list."""
    monkeypatch.setenv(VARIABLE, "/nonexistent/boards")

    with pytest.raises(BoardError, match=r"\$DPFEDGE_BOARDS: no such folder; found /nonexistent/boards"):
        board_files()


def test_files__installed_package_brings_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The boards lie in the package; in the source tree through a link."""
    (tmp_path / "dpfedge/_boards").mkdir(parents=True)
    (tmp_path / "dpfedge/_boards/host.yaml").write_text(BOARD)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("dpfedge.hardware.boardfile.__file__", str(tmp_path / "dpfedge/hardware/boardfile.py"))

    assert list(board_files()) == ["host"]


def test_load__misspelt_id() -> None:
    """The known boards are listed and the nearest one is offered."""
    with pytest.raises(BoardError) as caught:
        load_board("orinn")

    text = str(caught.value)
    assert text.startswith("board orinn: there is no such board; allowed h100, ")
    assert text.endswith("did you mean orin?")
    assert caught.value.exit_code == 3


def test_load__far_off_id() -> None:
    """Without a near word the way to add a board is named."""
    with pytest.raises(BoardError, match=r"put zzzzzz\.yaml into a folder named in \$DPFEDGE_BOARDS"):
        load_board("zzzzzz")


@pytest.mark.parametrize(
    ("machine", "board"),
    [
        ("orin", "orin"), ("orin-nano", "orin-nano"), ("thor", "thor"), ("rk3588", "rk3588"), ("h100", "h100"),
        ("mi300x", "mi300x"), ("x86", "host"), ("imx95", "imx95"), ("rk3582", "host"), ("no-sys", "host"),
        ("empty", "host"), ("h200", "h200"), ("orin-nx", "orin-nx"),
    ],
)  # fmt: skip
def test_auto__takes_the_most_specific(record: Record, machine: str, board: str) -> None:
    """Each recorded machine is its own board, and host where it is none."""
    assert find_board("auto", probe(record(machine))).id == board


@pytest.mark.parametrize("machine", ["orin", "x86", "empty"])
def test_host__matches_everything(record: Record, machine: str) -> None:
    """`host` may be chosen anywhere."""
    assert find_board("host", probe(record(machine))).id == "host"


def test_auto__more_fixed_characters_win(record: Record, folder: Path) -> None:
    """A board for one carrier beats the module's board; evidence of a device tree beats a PCI id."""
    carrier = BOARD.replace('pci: ["1234:5678"], arch: [x86_64]', 'device_tree: ["nvidia,p4071-0000+p3834-0008"]')
    (folder / "carrier.yaml").write_text(carrier)
    (folder / "gpu.yaml").write_text(BOARD.replace('"1234:5678"], arch: [x86_64]', '"10de:2b00"]'))

    assert find_board("auto", probe(record("thor"))).id == "carrier"


def test_auto__never_takes_a_board_that_must_be_asked_for(record: Record, folder: Path) -> None:
    """A second view of the same machine is no board that it is: it needs its name."""
    (folder / "aside.yaml").write_text(BOARD.replace('pci: ["1234:5678"], arch: [x86_64]', "asked: true"))

    machine = probe(record("thor"))
    assert (find_board("auto", machine).id, find_board("aside", machine).id) == ("thor", "aside")


def test_auto__broken_match_of_another_board_is_named(record: Record, folder: Path) -> None:
    """A board file that cannot be judged stops the choice instead of being skipped."""
    (folder / "bad.yaml").write_text(BOARD.replace("pci:", "pcie:"))

    with pytest.raises(ConfigError, match=r"bad\.yaml:3: unknown key 'pcie'"):
        find_board("auto", probe(record("x86")))


def test_match__every_key_must_hold(record: Record, folder: Path) -> None:
    """One key that fails is enough."""
    (folder / "mine.yaml").write_text(BOARD.replace("1234:5678", "10de:2330").replace("x86_64", "aarch64"))

    match = match_board(load_board("mine"), probe(record("h100")))
    assert not match.ok
    assert match.wanted == ("PCI device 10de:2330", "CPU architecture aarch64")
    assert match.found == ("NVIDIA H100 80GB HBM3 (10de:2330)", "NVIDIA H100 80GB HBM3 (10de:2330)", "x86_64")


def test_find__wrong_board_says_wanted_found_and_what_to_do(record: Record) -> None:
    """The message an operator gets from `--board orin` on a PC."""
    with pytest.raises(BoardError) as caught:
        find_board("orin", probe(record("x86")))

    assert caught.value.exit_code == 3
    assert str(caught.value) == (
        "board orin: this machine is not NVIDIA Jetson AGX Orin: looked for device tree compatible "
        "nvidia,p3737-0000+p3701-* or nvidia,*+p3701-* or nvidia,p3701-*; found no device tree, x86_64, "
        "CPU Intel(R) Core(TM) i5-8250U CPU @ 1.60GHz, no PCI display device; run it on that board, or choose this "
        "machine with --board auto (here: host) or --board host"
    )


def test_find__wrong_board_names_the_right_one(record: Record) -> None:
    """On another known board the remedy names it."""
    with pytest.raises(BoardError, match=r"with --board auto \(here: rk3588\)"):
        find_board("orin", probe(record("rk3588")))


def test_find__cut_down_chip_is_refused_by_name(record: Record) -> None:
    """RK3582 carries an RK3588S name and is still not an RK3588."""
    with pytest.raises(BoardError, match="and no device tree entry rockchip,rk3582"):
        find_board("rk3588", probe(record("rk3582")))


def test_boards__all_read_in_order() -> None:
    """Every installed board passes the schema."""
    ids = [board.id for board in boards()]

    assert ids == sorted(ids)
    assert {"host", "orin", "rk3588", "h100", "mi300x"} <= set(ids)


def test_auto__reads_a_changed_board_again(tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read of a board is kept only as long as its file stays as it was; a lost file is named."""
    text = (
        "title: my board\nvendor: me\nmatch: {arch: [ARCH]}\n"
        "devices: [{id: cpu, kind: cpu, backends: [cpu]}]\nplacement: {llm: {threads: 1}}\n"
    )
    file = tmp_path / "mine.yaml"
    monkeypatch.setenv("DPFEDGE_BOARDS", str(tmp_path))
    machine = probe(record("x86"))

    file.write_text(text.replace("ARCH", "aarch64"))
    assert find_board("auto", machine).id == "host"
    file.write_text(text.replace("ARCH", "x86_64"))
    assert find_board("auto", machine).title == "my board"
    file.unlink()
    file.symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r"mine\.yaml: the file cannot be read; found No such file"):
        find_board("auto", machine)


@pytest.mark.parametrize(("written", "device"), [("gpu", ("gpu",)), ("[gpu]", ("gpu",))])
def test_board__stage_on_a_device(folder: Path, written: str, device: tuple[str, ...]) -> None:
    """One id or several of the board's own devices."""
    (folder / "mine.yaml").write_text(BOARD.replace("nice: -5", f"device: {written}"))

    assert load_board("mine").placement["llm"]["device"] == device


def test_board__stage_on_a_device_it_has_not(folder: Path) -> None:
    """A misspelt device is an error of the board file."""
    (folder / "mine.yaml").write_text(BOARD.replace("nice: -5", "device: [gpu, cpu]"))

    with pytest.raises(
        ConfigError, match=r"mine\.yaml: placement\.llm: the board has no such device; found cpu; allowed gpu"
    ):
        load_board("mine")
