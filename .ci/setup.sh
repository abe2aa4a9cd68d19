#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the environment in $1 from requirements.lock: with uv where it is present, else with venv and pip.
set -euo pipefail
venv=$1
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "dpfedge needs Python 3.11 or newer; set PYTHON=python3.11")'

if command -v uv >/dev/null; then
  [ -x "$venv/bin/python" ] || uv venv --quiet --seed --python "$python" "$venv"
  uv pip install --quiet --python "$venv/bin/python" --require-hashes -r requirements.lock
else
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
fi

# the C core needs a C compiler; where the machine has none, the one in the ziglang wheel does
if [ -z "${CC:-}" ] && ! command -v cc >/dev/null; then
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check ziglang
  export CC="$(realpath "$venv")/bin/python -m ziglang cc" LDSHARED="$(realpath "$venv")/bin/python -m ziglang cc -shared"
fi
# the build's own warnings are shown only when it fails
log=$("$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --config-settings editable_mode=compat -e . -e plugins/dpfedge-cpu -e plugins/dpfedge-opencl 2>&1) || { echo "$log" >&2; exit 1; }

# every process of a pipeline starts faster when no module has to be compiled first, also where nothing writes __pycache__
"$venv/bin/python" -m compileall -q -j 0 "$venv/lib" dpfedge plugins/dpfedge-cpu/dpfedge_cpu plugins/dpfedge-opencl/dpfedge_opencl >/dev/null || true
