#!/usr/bin/env bash
# Measures everything in docs/performance.md, in one run on one machine. The raw
# output, which benchstat reads, goes to the file named by BENCH_OUT (default
# bench.txt in a new folder, whose name is printed); a table of medians follows.
#
#   make bench                     six rounds of everything
#   COUNT=3 make bench             fewer
#   test/bench.sh ./store          some packages
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=test/lib.sh
. test/lib.sh

bash test/kernels/build.sh
landrun=$(bash test/bench/landrun.sh)
note "landrun: $landrun"

out=${BENCH_OUT:-$(mktemp -d)/bench.txt}
packages=("$@")
[ ${#packages[@]} -gt 0 ] || packages=(./enforce/profile ./test/depth ./enforce/landlock ./enforce/spawn ./smack ./test/smackbench ./internal/policy ./store ./internal/sandbox ./internal/server ./cmd/policyd-runc ./test/fleet)
: >"$out"
for p in "${packages[@]}"; do
  note "bench $p"
  # The fleet is a module of its own, and one of its rounds takes seconds.
  case $p in
    ./test/fleet) (cd "$p" && go test -run '^$' -bench . -benchtime 3x -count "${COUNT:-6}" -timeout 120m .) ;;
    *) CI=true go test -run '^$' -bench . -benchmem -count "${COUNT:-6}" -timeout 60m "$p" ;;
  esac | tee -a "$out"
done
note "medians (benchstat)"
tool benchstat "$out"
note "raw: $out"
