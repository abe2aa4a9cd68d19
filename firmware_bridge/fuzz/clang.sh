#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts Debian's clang with libFuzzer into the folder $1, without root; prints the command that runs it.
set -euo pipefail
download=$(cd "$(dirname "$0")/.." && pwd)/download.sh
mkdir -p "$1"
cd "$1"
if [ ! -x usr/lib/llvm-14/bin/clang ]; then
  bash "$download" "$PWD/lists" clang-14 libclang-common-14-dev libclang-cpp14 libclang-rt-14-dev libclang1-14 libllvm14 \
    libz3-4 libedit2 libxml2 libicu72 libbsd0 libmd0 libtinfo6 llvm-14-linker-tools
  for package in *.deb; do dpkg -x "$package" .; done
  rm -f ./*.deb
fi
echo "env LD_LIBRARY_PATH=$PWD/usr/lib/x86_64-linux-gnu:$PWD/usr/lib/llvm-14/lib $PWD/usr/lib/llvm-14/bin/clang"
