# SPDX-License-Identifier: Apache-2.0
"""Recorded machines for unit tests: small roots of files, laid into a temporary folder, from facts of real boards."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Record = Callable[[str], Path]

A76 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
A78AE = f"{A76} uscat ilrcpc flagm paca pacg"
V3AE = f"{A78AE} jscvt fcma dit sha3 sha512 asimdfhm ssbs sb flagm2 frint sve sve2 i8mm bf16 bti svei8mm svebf16"
V2 = "fpu cx8 cmov mmx sse sse2 lm cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni"
SPR = f"{V4} avx512_bf16 avx512_fp16 avx_vnni amx_tile amx_int8 amx_bf16"
Files = Mapping[str, str | bytes]


def arm_cpus(parts: list[int], words: str) -> Files:
    """`/proc/cpuinfo` and topology of cores with these MIDR parts."""
    blocks = [
        f"processor\t: {core}\nBogoMIPS\t: 62.50\nFeatures\t: {words}\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
        f"CPU variant\t: 0x1\nCPU part\t: {part:#x}\nCPU revision\t: 0\n"
        for core, part in enumerate(parts)
    ]
    return {"proc/cpuinfo": "\n".join(blocks), "sys/devices/system/cpu/online": f"0-{len(parts) - 1}\n"}


def x86_cpus(cores: int, words: str, model: str, threads: int = 1) -> Files:
    """`/proc/cpuinfo` of one package with `cores` cores of `threads` hardware threads."""
    blocks = [
        f"processor\t: {core}\nvendor_id\t: GenuineIntel\nmodel name\t: {model}\n"
        f"physical id\t: 0\ncore id\t\t: {core % cores}\n"
        f"flags\t\t: {words}\n"
        for core in range(cores * threads)
    ]
    return {"proc/cpuinfo": "\n".join(blocks), "sys/devices/system/cpu/online": f"0-{cores * threads - 1}\n"}


def tree(*compatible: str, model: str) -> Files:
    """The device tree's root."""
    names = b"".join(name.encode() + b"\0" for name in compatible)
    return {"proc/device-tree/compatible": names, "proc/device-tree/model": model.encode() + b"\0"}


def memory(total_kib: int) -> Files:
    """`/proc/meminfo` with three quarters available."""
    return {"proc/meminfo": f"MemTotal: {total_kib} kB\nMemFree: 1000 kB\nMemAvailable: {total_kib * 3 // 4} kB\n"}


def pci(address: str, vendor: int, device: int, kind: int) -> Files:
    """One PCI function."""
    place = f"sys/bus/pci/devices/{address}"
    return {
        f"{place}/vendor": f"{vendor:#06x}\n",
        f"{place}/device": f"{device:#06x}\n",
        f"{place}/class": f"{kind:#08x}\n",
    }


def kernel(release: str) -> Files:
    """The kernel's release."""
    return {"proc/sys/kernel/osrelease": f"{release}\n"}


def capacities(*values: int) -> Files:
    """`cpu_capacity` of each core."""
    return {f"sys/devices/system/cpu/cpu{core}/cpu_capacity": f"{value}\n" for core, value in enumerate(values)}


def cache(core: int, index: int, level: int, kind: str, size: str, shared: str) -> Files:
    """One cache of one core."""
    place = f"sys/devices/system/cpu/cpu{core}/cache/index{index}"
    return {
        f"{place}/level": f"{level}\n",
        f"{place}/type": f"{kind}\n",
        f"{place}/size": f"{size}\n",
        f"{place}/shared_cpu_list": shared,
    }


def auxv(**entries: int) -> Files:
    """`/proc/self/auxv` with `hwcap`, `hwcap2` and `page`."""
    numbers = {"hwcap": 16, "hwcap2": 26, "page": 6}
    pairs = [(numbers[name], value) for name, value in entries.items()] + [(0, 0)]
    return {"proc/self/auxv": b"".join(struct.pack("=QQ", *pair) for pair in pairs)}


MACHINES: Mapping[str, Files] = {
    "orin": {
        **arm_cpus([0xD42] * 12, A78AE),
        **tree(
            "nvidia,p3737-0000+p3701-0000", "nvidia,p3701-0000", "nvidia,tegra234",
            model="NVIDIA Jetson AGX Orin Developer Kit",
        ),
        **memory(64349640),
        **kernel("5.15.148-tegra"),
        **auxv(page=4096),
    },
    "orin-nano": {
        **arm_cpus([0xD42] * 6, A78AE),
        **tree(
            "nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", "nvidia,tegra234",
            model="NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
        ),
        **memory(7802524),
        **kernel("5.15.148-tegra"),
    },
    "orin-nx": {
        **arm_cpus([0xD42] * 8, A78AE),
        **tree("nvidia,p3768-0000+p3767-0000-super", "nvidia,p3767-0000", "nvidia,tegra234", model="Orin NX"),
        **memory(15656060),
    },
    "thor": {
        **arm_cpus([0xD83] * 14, V3AE),
        **tree(
            "nvidia,p4071-0000+p3834-0008", "nvidia,p3834-0008", "nvidia,tegra264",
            model="NVIDIA Jetson AGX Thor Developer Kit",
        ),
        **memory(128822120),
        **kernel("6.8.12-tegra"),
        **pci("0000:01:00.0", 0x10DE, 0x2B00, 0x030000),
    },
    "rk3588": {
        **arm_cpus([0xD05] * 4 + [0xD0B] * 4, A76),
        **tree("radxa,rock-5b", "rockchip,rk3588", model="Radxa ROCK 5B"),
        **capacities(*[414] * 4, *[1024] * 4),
        **cache(4, 0, 1, "Data", "64K", "4"),
        **cache(4, 1, 2, "Unified", "512K", "4"),
        **cache(4, 2, 3, "Unified", "3072K", "0-7"),
        **memory(16176532),
        **kernel("6.1.75-vendor-rk35xx"),
    },
    "rk3582": {
        **arm_cpus([0xD05] * 4 + [0xD0B] * 2, A76),
        **tree("radxa,e52c", "rockchip,rk3582", "rockchip,rk3588s", model="Radxa E52C"),
        **memory(8000000),
    },
    "imx95": {
        **arm_cpus([0xD05] * 6, A76),
        **tree("fsl,imx95-19x19-evk", "fsl,imx95", model="NXP i.MX95 19X19 board"),
        **memory(8000000),
        "proc/self/smaps": "KernelPageSize:       16 kB\n",
    },
    "h100": {
        **x86_cpus(4, SPR, "Intel(R) Xeon(R) Platinum 8480C", threads=2),
        **memory(2113500000),
        **kernel("6.8.0-60-generic"),
        **pci("0000:18:00.0", 0x10DE, 0x2330, 0x030200),
        **pci("0000:2a:00.0", 0x10DE, 0x2330, 0x030200),
        **pci("0000:07:00.0", 0x10DE, 0x22A3, 0x068000),
        **pci("0000:00:1f.0", 0x8086, 0x1B81, 0x060100),
        "sys/class/dmi/id/sys_vendor": "Supermicro\n",
        "sys/class/dmi/id/product_name": "SYS-821GE-TNHR\n",
        "proc/self/cgroup": "0::/pod/box\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        "sys/fs/cgroup/pod/cpu.max": "350000 100000\n",
        "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
        "sys/fs/cgroup/pod/memory.max": "max\n",
        "sys/fs/cgroup/pod/box/memory.max": "68719476736\n",
    },
    "h200": {
        **x86_cpus(2, SPR, "Intel(R) Xeon(R) Platinum 8558"),
        **memory(131072000),
        **pci("0000:18:00.0", 0x10DE, 0x2335, 0x030200),
    },
    "mi300x": {
        **x86_cpus(4, V4, "AMD EPYC 9654 96-Core Processor"),
        **memory(2113500000),
        **pci("0000:05:00.0", 0x1002, 0x74A1, 0x120000),
    },
    "mi325x": {
        **x86_cpus(4, V4, "AMD EPYC 9654 96-Core Processor"),
        **memory(2113500000),
        **pci("0000:05:00.0", 0x1002, 0x74A5, 0x120000),
    },
    "x86": {
        **x86_cpus(2, V3, "Intel(R) Core(TM) i5-8250U CPU @ 1.60GHz"),
        **memory(8000000),
        **kernel("6.1.0-41-amd64"),
        "proc/self/status": "Name:\tpython\nCpus_allowed:\t1\nCpus_allowed_list:\t1\n",
        "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n",
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "150000\n",
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "4294967296\n",
    },
    "host": {**x86_cpus(1, V2, "QEMU Virtual CPU version 2.5+"), **memory(2000000)},
    "no-sys": {
        "proc/cpuinfo": arm_cpus([0xD08] * 4, "fp asimd evtstrm crc32 cpuid")["proc/cpuinfo"],
        "proc/self/status": "Cpus_allowed_list:\t0-2\n",
        **memory(4000000),
    },
    "foreign": {
        **x86_cpus(8, V3, "Intel(R) Xeon(R)"),
        **auxv(hwcap=sum(1 << bit for bit in (1, 7, 8, 9, 10, 12, 20)), hwcap2=1 << 13, page=65536),
        "proc/sys/kernel/arch": "aarch64\n",
        "proc/self/status": "Cpus_allowed_list:\t0-3\n",
        **memory(4000000),
    },
    "empty": {},
}  # fmt: skip
"""`foreign` is aarch64 under an emulator that shows the host's /proc/cpuinfo."""


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """A function that lays the named machine into a folder and returns it."""

    def _record(name: str) -> Path:
        root = tmp_path / name
        root.mkdir()
        for path, content in MACHINES[name].items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return _record


@pytest.fixture(autouse=True)
def _nobody_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whom a test trusts it says itself, wherever it runs: make exports the demo's trust directory."""
    monkeypatch.delenv("DPFEDGE_TRUST", raising=False)
