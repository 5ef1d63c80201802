#!/usr/bin/env bash
# Holds the engine against kernels for long: N random operations on the host's
# kernel, then as many on 7.3, from SEED. Ctrl-C tells the totals so far. Ends
# non-zero at a mismatch, with its smallest case.
#
#   N=1000000 SEED=1 KERNELS="host uml-7.3" JOBS=2 test/fuzz-kernel.sh
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=test/lib.sh
. test/lib.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash test/kernels/build.sh >&2
go test -c -o "$work/differential.test" ./test/differential

export DIFFERENTIAL=long
export DIFFERENTIAL_N=${N:-1000000} DIFFERENTIAL_SEED=${SEED:-$(date +%s)}
export DIFFERENTIAL_KERNELS=${KERNELS:-host uml-7.3} DIFFERENTIAL_JOBS=${JOBS:-}
cd test/differential
"$work/differential.test" &
pid=$!
# Ctrl-C reaches the tester too; it tells its totals before it ends.
trap : INT
trap 'kill -TERM "$pid"' TERM HUP
while kill -0 "$pid" 2>/dev/null; do
  status=0
  wait "$pid" || status=$?
done
exit "$status"
