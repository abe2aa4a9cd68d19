# SPDX-License-Identifier: Apache-2.0
"""Binding on the recorded machines in tests/fixtures/machines: boards, fake GPU backends, wrong boards, damage."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpfedge.backend.accelerators import accelerators
from dpfedge.backend.api import Device
from dpfedge.backend.registry import Registry
from dpfedge.binding import bind_here, look
from dpfedge.errors import BindError, BoardError
from dpfedge.hardware.board import board_files
from dpfedge.hardware.probe import probe
from dpfedge.package import Package

Build = Callable[..., Package]
MACHINES = Path(__file__).parents[2] / "fixtures/machines"
BOARDS = {
    "h100": "h100", "h100-mig": "h100", "imx95": "imx95", "mi250": "host", "mi300x": "mi300x", "mi300x-cpx": "mi300x",
    "mi325x": "mi325x", "orin-agx": "orin", "orin-nano": "orin-nano", "orin-nx": "orin-nx", "rk3588": "rk3588",
    "thor": "thor",
}  # fmt: skip
MEMORY = 40 << 30  # what the fake backend claims where no file tells


class FakeGpu:
    """A backend that offers the accelerators of one kind, one device for each part; it can load nothing."""

    version, abi = "0.1.0", 1

    def __init__(self, name: str, kind: str) -> None:
        self.name, self._kind = name, kind

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """Devices as a plugin without its driver's library would list them."""
        found = []
        for index, gpu in enumerate(gpu for gpu in accelerators(sysroot) if gpu.kind == self._kind):
            for part in gpu.parts or ("",):
                found.append(
                    Device(
                        f"{self.name}:{index}{':' if part else ''}{part}", self.name, gpu.kind, gpu.name,
                        gpu.arch or "unknown", frozenset(), gpu.memory_bytes or MEMORY // max(1, len(gpu.parts)),
                        gpu.unified_memory, drivers=gpu.drivers,
                    )
                )  # fmt: skip
        return found


@pytest.fixture
def registry() -> Registry:
    """The real CPU backend and fake ones for GPUs."""
    registry = Registry.load(["cpu"])
    for name, kind in (
        ("cuda", "gpu.nvidia"), ("jetson", "gpu.nvidia"), ("rocm", "gpu.amd"), ("opencl", "gpu.arm"),
    ):  # fmt: skip
        registry.add(FakeGpu(name, kind))  # type: ignore[arg-type]
    return registry


def test_machines__each_has_a_board_and_a_readme() -> None:
    """A new recording is tested here; none claims to be a real one without saying so."""
    assert sorted(BOARDS) == sorted(path.name for path in MACHINES.iterdir() if path.is_dir())
    for name in BOARDS:
        assert (
            "Written from documented facts, not recorded on the board." in (MACHINES / name / "README.md").read_text()
        )


@pytest.mark.parametrize(("machine", "board"), BOARDS.items())
def test_auto__finds_the_board(machine: str, board: str) -> None:
    """`--board auto` takes the machine's own board."""
    assert look(sysroot=MACHINES / machine).board.id == board


@pytest.mark.parametrize("machine", BOARDS)
def test_wrong_board__is_refused_on_every_machine(build: Build, parts: Any, machine: str) -> None:
    """What was looked for, what is there, and two things to do; `host` is every machine's second name."""
    package = build(parts.target("t", "cpu", ["memory", 0]))
    for board in set(board_files()) - {BOARDS[machine], "host", "host-opencl"}:
        with pytest.raises(BoardError) as caught:
            bind_here(package, board, sysroot=MACHINES / machine)
        assert caught.value.wanted
        assert caught.value.exit_code == 3
        assert f"--board auto (here: {BOARDS[machine]}) or --board host" in str(caught.value)
    assert bind_here(package, "host", sysroot=MACHINES / machine).board.id == "host"


TARGETS = (
    ("mig", "cuda", ["and", ["arch", "sm_90"], ["driver", "nvidia", ">=550"], ["not", ["memory", 8 << 30]]]),
    ("h100", "cuda", ["and", ["board", "h100"], ["arch", "sm_90"], ["driver", "nvidia", ">=550", "<600"]]),
    ("mi300x", "rocm", ["and", ["arch", "gfx942"], ["memory", 190 << 30], ["driver", "amdgpu", ">=6.8"]]),
    ("thor", "jetson", ["and", ["arch", "sm_110"], ["driver", "jetpack", ">=7.1"]]),
    ("orin", "jetson", ["and", ["arch", "sm_87"], ["driver", "l4t", ">=36.4.3", "<37"]]),
    ("mali-kernel", "opencl", ["and", ["class", "gpu.arm"], ["driver", "panthor", ">=6.10"]]),
    ("mali", "opencl", ["and", ["arch", "mali-g610"], ["driver", "mali", ">=13"]]),
)


@pytest.mark.parametrize(
    ("machine", "target", "device"),
    [
        ("h100", "h100", "cuda:0"), ("h100-mig", "mig", "cuda:0:gi7/ci0"), ("mi300x", "mi300x", "rocm:0"),
        ("thor", "thor", "jetson:0"), ("orin-agx", "orin", "jetson:0"), ("orin-nano", "orin", "jetson:0"),
        ("rk3588", "mali", "opencl:0"), ("imx95", "mali-kernel", "opencl:0"),
    ],
)  # fmt: skip
def test_gpu__targets_of_a_machine_that_is_not_here(
    build: Build, parts: Any, registry: Registry, machine: str, target: str, device: str
) -> None:
    """Driver ranges, memory and architecture choose the target; a part of a split GPU is a device of its own."""
    package = build(*(parts.target(*item) for item in TARGETS))

    bound = bind_here(package, sysroot=MACHINES / machine, registry=registry)
    assert (bound.targets[0].id, bound.devices["llm"].id) == (target, device)


def test_gpu__old_driver_is_named(build: Build, parts: Any, registry: Registry) -> None:
    """The refusal has the version that is there and the one that is wanted."""
    package = build(parts.target("t", "jetson", ["and", ["arch", "sm_87"], ["driver", "l4t", ">=38"]]))

    with pytest.raises(BindError) as caught:
        bind_here(package, sysroot=MACHINES / "orin-agx", registry=registry)
    [refusal] = caught.value.refusals
    assert (refusal.field, refusal.wanted, refusal.found) == ("driver", "driver l4t >=38", "l4t 36.4.3 (jetson:0)")  # type: ignore[attr-defined]


@pytest.mark.parametrize("machine", BOARDS)
def test_gpu__without_a_plugin_says_which(build: Build, parts: Any, machine: str) -> None:
    """The board's accelerator has a target and no plugin is installed: its distribution is named."""
    backends = {"h100": "cuda", "mi300x": "rocm", "rk3588": "opencl", "imx95": "opencl"}
    backend = backends.get(BOARDS[machine], "jetson")
    package = build(parts.target("gpu", backend, ["not", ["class", "cpu.x86_64", "cpu.aarch64"]]))

    registry = Registry.load(["cpu"])
    with pytest.raises(BindError) as caught:
        bind_here(package, sysroot=MACHINES / machine, registry=registry)
    [refusal] = caught.value.refusals
    assert (refusal.field, refusal.remedy) == ("backend", f"pip install dpfedge-{backend}")  # type: ignore[attr-defined]


def damaged(root: Path, machine: str, seed: int) -> Path:
    """The machine with some of its files cut, filled with noise, made unreadable things or led elsewhere."""
    chance = random.Random(seed)
    shutil.copytree(MACHINES / machine, root, dirs_exist_ok=True)
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        data = path.read_bytes()
        match chance.randrange(8):
            case 0:
                path.write_bytes(data[: chance.randrange(len(data) + 1)])
            case 1:
                path.write_bytes(chance.randbytes(chance.randrange(200)))
            case 2:
                path.write_bytes(data.replace(b"0", b"9" * chance.choice([2, 30, 5000])))
            case 3:
                path.unlink()
                path.symlink_to(chance.choice(["/etc/passwd", "../../../../../../etc/passwd", path.name, "/proc"]))
            case 4:
                path.unlink()
                path.mkdir()
            case 5:
                path.write_bytes(bytes(byte ^ chance.choice([0, 0, 0, 255]) for byte in data))
    return root


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32), machine=st.sampled_from(sorted(BOARDS)))
def test_damage__is_answered_never_raised(
    build: Build, parts: Any, registry: Registry, tmp_path_factory: pytest.TempPathFactory, seed: int, machine: str
) -> None:
    """Whatever a recording holds, binding answers or refuses, and nothing of this machine is read through it."""
    root = damaged(tmp_path_factory.mktemp("damaged"), machine, seed)
    package = build(*(parts.target(*item) for item in TARGETS), parts.target("any", "cpu", ["memory", 0]))

    try:
        answer = bind_here(package, sysroot=root, registry=registry, allow_fallback=["cpu"]).targets[0].id
    except (BindError, BoardError) as error:
        answer = str(error)
    assert answer
    assert "root:x:0" not in f"{answer} {probe(root)}"
    shutil.rmtree(root)


def test_sysroot__nothing_of_this_machine_is_opened(build: Build, parts: Any, tmp_path: Path) -> None:
    """With links that lead everywhere, binding opens and lists no file of /proc, /sys, /etc or /dev."""
    package = build(parts.target("any", "cpu", ["memory", 0]))
    root = tmp_path / "box"
    shutil.copytree(MACHINES / "orin-agx", root)
    for path, target in (
        ("proc/driver", "/proc/driver"), ("sys/bus", "/sys/bus"), ("sys/class", "../../../../../../../../sys/class"),
        ("proc/sys/kernel/osrelease", "/proc/sys/kernel/osrelease"), ("etc/nv_tegra_release", "/etc/passwd"),
    ):  # fmt: skip
        (root / path).unlink(missing_ok=True)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)
    code = (
        "import sys\n"
        "from dpfedge.binding import bind_here\n"
        "from dpfedge.package import open_package\n"
        "import dpfedge.binding.bind, dpfedge.hardware.board, dpfedge_cpu\n"
        "seen = []\n"
        "def hook(name, args):\n"
        "    if name in ('open', 'os.listdir', 'os.scandir') and isinstance(args[0], str): seen.append(args[0])\n"
        "sys.addaudithook(hook)\n"
        "print(bind_here(open_package(sys.argv[1]), sysroot=sys.argv[2]).targets[0].id)\n"
        "raise SystemExit(str([p for p in seen if p.startswith(('/proc', '/sys', '/etc', '/dev'))] or ''))\n"
    )

    done = subprocess.run([sys.executable, "-c", code, package.path, root], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr.strip()) == ("any\n", "")
