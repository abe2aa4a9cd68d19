#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Debian packages into the folder one stands in, without root: `download.sh LISTS PACKAGE...`.
# Where this machine's own lists name versions that are gone, lists of today are fetched into the folder LISTS.
set -euo pipefail
lists=$1
shift
apt-get download -q "$@" >download.log 2>&1 && exit
mkdir -p "$lists/partial" "$lists/cache/archives/partial"
own=(-o "Dir::State::lists=$lists" -o "Dir::Cache=$lists/cache" -o "Debug::NoLocking=true" -o "APT::Sandbox::User=root")
{ apt-get "${own[@]}" -qq update && apt-get "${own[@]}" download -q "$@"; } >>download.log 2>&1 || { cat download.log >&2; exit 1; }
