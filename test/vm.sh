#!/usr/bin/env bash
# Boots the machine of test/systemd for a person: the host's systemd as process 1 of a kernel 7.3 with Landlock and Smack,
# policyd installed, its socket listening, and a root shell on this terminal. Nothing of it is kept; `exit` powers it off.
#
#   PACKAGE=dist/policyd.deb test/vm.sh    a machine without policyd, and the package in /root, to be installed there
#   STATE=DIR test/vm.sh                   /var/lib/policyd is this folder, and so outlives the boot
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=test/lib.sh
. test/lib.sh

[ "$(id -u)" = 0 ] || fail "the machine's root is this host's: run it as root"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go test -c -o "$dir/vm.test" ./test/systemd
# UML leaves the terminal as it was set up for the guest.
saved=$(stty -g 2>/dev/null || true)
[ -z "$saved" ] || trap 'stty "$saved"; rm -rf "$dir"' EXIT
cd test/systemd
POLICYD_VM=1 PACKAGE="${PACKAGE:+$(realpath "$ROOT/$PACKAGE" 2>/dev/null || realpath "$PACKAGE")}" STATE="${STATE:-}" \
  "$dir/vm.test" -test.run '^TestByHand$' -test.timeout 0
