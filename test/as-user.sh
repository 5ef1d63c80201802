#!/usr/bin/env bash
# Runs the tests of the packages that meet the kernel, and the quickstart, as a
# user without privileges. Called by root; the user is "nobody".
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=test/lib.sh
. test/lib.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

# His PATH has no folder of root's own in it.
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

as_user() {
  setpriv --reuid=nobody --regid=nogroup --clear-groups \
    env -i PATH="$path" HOME="$work/home" XDG_RUNTIME_DIR="$work/run" TMPDIR="$work/tmp" \
    POLICYD_KERNEL_CACHE="$work/kernels" POLICYD_TEST_PROGRAMS="$work/src/bin" "$@"
}
# CI is not passed on: what needs root is skipped here and was run by root before.

mkdir -p "$work/home" "$work/run" "$work/tmp"
chown nobody:nogroup "$work/home" "$work/run" "$work/tmp"
chmod 700 "$work/run"

# The kernels may lie in a home that this user cannot enter.
first=$(bash test/kernels/build.sh --print | head -n 1 | cut -d' ' -f2)
cp -rL "$(dirname "$(dirname "$first")")" "$work/kernels"
rm -rf "$work/kernels/store"

# The checkout may lie where this user cannot go: a copy that he can read.
cp -r . "$work/src"
chown -R nobody:nogroup "$work/src"

test_package() {
  go test -c -o "$work/src/$1/user.test" "$1"
  note "as nobody: $1"
  (cd "$work/src/$1" && as_user ./user.test -test.timeout 10m -test.short "${@:2}")
}

for pkg in ./enforce/landlock ./enforce/spawn ./internal/sandbox ./internal/server ./store ./cmd/policyctl ./test/differential; do
  test_package "$pkg"
done
# What is decided on a host depends on who looks at it; in a guest that is root.
for pkg in ./internal/cli/decide ./internal/cli/preflight ./internal/policytest; do
  test_package "$pkg" -test.skip '/uml-'
done

note "as nobody: quickstart"
(cd "$work/src" && as_user bash test/quickstart.sh >/dev/null)
