#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# On the booted board: what a person would do with two packages, one compiled for this board and one for another.
#
# In: /own.dpfbin, /other.dpfbin, /trust. Out: of each step its text (NAME.out, NAME.err) and exit code (NAME.rc) in
# /results, and a recording of this machine. It judges nothing: boards.py does, on the machine that emulates this one.
export PATH=/usr/bin:/usr/sbin PYTHONPATH=/opt/site HOME=/tmp LC_ALL=C.UTF-8 ORT_DISABLE_TELEMETRY=1 PYTHONDONTWRITEBYTECODE=1
cd /tmp
python=$(ls /usr/bin/python3.* | grep -E '3\.[0-9]+$' | head -1)
say() { echo "visit: $(cut -d. -f1 /proc/uptime) s: $*"; }

step() { # NAME COMMAND...
  name=$1
  shift
  "$@" >"/results/$name.out" 2>"/results/$name.err"
  echo $? >"/results/$name.rc"
  say "$name: exit code $(cat "/results/$name.rc")"
}

dpfedge() { "$python" -m dpfedge "$@"; }

served() { # until it is ready, one question, SIGTERM
  "$python" -m dpfedge serve /own.dpfbin --board auto --port 8080 --no-socket --trust /trust --json &
  server=$!
  for _ in $(seq 300); do
    grep -q '"ready"' /results/serve-accepted.out && break
    kill -0 $server 2>/dev/null || break
    sleep 1
  done
  busybox wget -q -O /results/models.json http://127.0.0.1:8080/v1/models
  kill -TERM $server
  wait $server
}

step probe dpfedge probe --json
step record dpfedge probe --record /results/recording
step bind dpfedge bind /own.dpfbin --json
step bind-other dpfedge bind /other.dpfbin --json
step serve-refused dpfedge serve /other.dpfbin --board auto --port 8080 --no-socket --trust /trust
step serve-accepted served
if grep -q visit=units /proc/cmdline; then
  cd /tests
  export DPF_KERNEL=booted
  step units "$python" -m pytest -p no:cacheprovider -p emulated -q -rs -m "not slow" --timeout 900 $(cat /tests/selection)
fi
