#!/usr/bin/env bash
# The whole test suite on one machine: installs what is missing (as root on
# Debian), makes the kernels, checks generated code, lints, and runs the tests
# as root and as a plain user.
#
# Steps can be chosen: test/run.sh lint unit
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=test/lib.sh
. test/lib.sh

step_deps() { bash test/deps.sh; }

step_kernels() { bash test/kernels/build.sh; }

# Generated code is committed, so that a build needs no generator; here it is
# made again and must be equal.
step_generated() {
  local out
  out=$(mktemp -d)
  cp -r api "$out/api"
  (cd api && tool buf generate)
  diff -r api "$out/api" || fail "generated code in api/ is out of date: make generate"
  rm -rf "$out"
}

step_lint() { make --no-print-directory lint; }

step_build() { make --no-print-directory build; }

step_unit() { go test -timeout 20m ./...; }

# Package smack beside the kernels' access2, and the model beside smackfs, in numbers that mean something.
step_smack() {
  POLICYD_SMACK_QUERIES=${QUERIES:-100000} POLICYD_SMACK_OPERATIONS=${OPERATIONS:-10000} \
    go test -count=1 -timeout 20m -run '^TestKernel$' ./smack/smackfs
}

# The race detector needs cgo, and looks at our own code: that is the same on the
# host as in the guests, where it takes many times as long.
step_race() { CGO_ENABLED=1 go test -race -short -skip '/uml-' -timeout 20m ./...; }

# Much of policyd is for users without privileges, so their view is tested too.
step_user() {
  if [ "$(id -u)" != 0 ]; then
    note "user: this run is a plain user's already"
    return
  fi
  bash test/as-user.sh
}

step_fuzz() { FUZZTIME=${FUZZTIME:-5s} bash test/fuzz.sh; }

# The fleet on a real etcd, in a module of its own: users of policyd do not inherit etcd's server.
step_fleet() { (cd test/fleet && go test -count=1 -parallel 6 -timeout 10m ./...); } # they wait more than they work

step_quickstart() { bash test/quickstart.sh >/dev/null; }

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(deps kernels generated lint build unit smack race user fuzz fleet quickstart)
for s in "${steps[@]}"; do
  start=$SECONDS
  note "$s"
  "step_$s"
  note "$s: ok after $((SECONDS - start)) s"
done
note "all of: ${steps[*]}"
