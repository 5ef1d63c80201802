#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (default 60s) each.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=test/lib.sh
. test/lib.sh

time=${FUZZTIME:-60s}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r dir; do
  go test -list '^Fuzz' "$dir" | grep '^Fuzz' | while read -r target; do
    note "fuzz $dir $target $time"
    # At the end of its time go test itself fails now and then, with "context deadline exceeded" and without an input that
    # fails (golang/go#75804): such a target is tried once more.
    if ! go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" </dev/null 2>&1 | tee "$out"; then
      if grep -q 'Failing input written' "$out" || ! grep -q 'context deadline exceeded' "$out"; then exit 1; fi
      note "fuzz $dir $target: once more"
      go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" </dev/null
    fi
  done
done
