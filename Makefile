# SPDX-License-Identifier: Apache-2.0
# `make demo` and `make test` do everything from a fresh clone; the rest is here for those who work on dpfedge.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
DPFEDGE := $(VENV)/bin/dpfedge
BOARD ?= host
export ORT_DISABLE_TELEMETRY := 1
# the demo package is signed with a key of this checkout, made once and trusted by what is started here only
export DPFEDGE_TRUST := $(CURDIR)/build/trust

.PHONY: help setup demo test test-fast check bench wheels test-aarch64 test-boards lock core-test bpf bpf-or-say clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make setup   .venv/ with dpfedge, its plugins and the development tools
setup: $(VENV)/.stamp

$(VENV)/.stamp: .ci/setup.sh requirements.lock pyproject.toml plugins/dpfedge-cpu/pyproject.toml plugins/dpfedge-opencl/pyproject.toml $(wildcard plugins/dpfedge-cpu/kernels/* firmware_bridge/src/*.c firmware_bridge/python/*.c firmware_bridge/include/dpf/*.h)
	PYTHON="$(PYTHON)" bash .ci/setup.sh $(VENV)
	@touch $@

build/demo.key: | $(VENV)/.stamp
	@mkdir -p build
	$(DPFEDGE) keygen --name demo -o $@ --trust build/trust

build/voice.dpfbin: $(VENV)/.stamp examples/voice/voice.yaml | build/demo.key
	$(DPFEDGE) compile examples/voice/voice.yaml -o $@ --board $(BOARD) --sign build/demo.key

## make demo    builds build/voice.dpfbin, serves it and holds a spoken conversation with it
demo: build/voice.dpfbin
	$(PY) examples/voice/demo.py build/voice.dpfbin --board $(BOARD)

## make test    everything CI runs: checks, unit, hostile and end-to-end tests, C core tests
test: check core-test bpf-or-say build/voice.dpfbin
	$(PY) -m pytest tests -m "not slow" -q -rs

## make test-fast   unit, house and docs tests only
test-fast: $(VENV)/.stamp
	$(PY) -m pytest tests/unit tests/house tests/docs tests/hostile -q -rs -m "not slow"

## make check   lint and types
check: $(VENV)/.stamp
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

core-test: $(VENV)/.stamp
	$(MAKE) -C firmware_bridge test

## make bpf     the eBPF programs of firmware_bridge/ebpf, compiled with clang into dpfedge/routing/kernel
bpf:
	bash firmware_bridge/ebpf/build.sh dpfedge/routing/kernel firmware_bridge/build

bpf-or-say:
	@$(MAKE) -s bpf || echo "bpf: SKIPPED, no clang here and Debian's packages cannot be fetched; tests of the kernel say so"

## make bench   measures the demo package and writes build/bench.json
bench: build/voice.dpfbin
	$(DPFEDGE) bench build/voice.dpfbin --board $(BOARD) --json build/bench.json

## make wheels  dist/ with wheels of dpfedge and its plugins: compiled ones are manylinux, for x86-64 and aarch64
wheels: $(VENV)/.stamp
	bash tests/aarch64/wheels.sh

## make test-aarch64   an emulated aarch64 userland from those wheels, tested; the C core on big-endian and small cores
test-aarch64: $(VENV)/.stamp
	bash tests/aarch64/check.sh

## make test-boards    nightly: boots emulated boards (Orin, Orin Nano, Thor, RK3588) on pages of 4 and 16 KiB and visits them
test-boards: $(VENV)/.stamp
	bash tests/boards/check.sh

## make lock    writes requirements.lock anew from pyproject.toml
lock:
	$(VENV)/bin/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header -o requirements.lock

clean:
	rm -rf build dist $(VENV) dpfedge/routing/kernel/*.bpf.o
