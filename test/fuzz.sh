#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (default 60s) each.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=test/lib.sh
. test/lib.sh

time=${FUZZTIME:-60s}
grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r dir; do
  go test -list '^Fuzz' "$dir" | grep '^Fuzz' | while read -r target; do
    note "fuzz $dir $target $time"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" </dev/null
  done
done
