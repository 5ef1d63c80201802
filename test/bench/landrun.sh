#!/usr/bin/env bash
# Builds landrun, which the benchmarks compare with, from the source in Debian's
# package of it (suite sid) and its modules, into the cache folder. Prints the
# program's path and version. Once built it is used as it is.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=test/apt-temp.sh
. "$here/../apt-temp.sh"

out=${XDG_CACHE_HOME:-$HOME/.cache}/policyd/bench
if [ ! -x "$out/landrun" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	apt_temp "$work/apt" sid
	apt-get "${apt_opts[@]}" -o APT::Update::Error-Mode=any update >&2
	(cd "$work" && apt-get "${apt_opts[@]}" download golang-github-zouuup-landrun-dev >&2 && dpkg-deb -x golang-*.deb src)
	mkdir -p "$out"
	(cd "$work/src/usr/share/gocode/src/github.com/zouuup/landrun" &&
		CGO_ENABLED=0 GOFLAGS=-mod=mod go build -trimpath -ldflags '-s -w' -o "$work/landrun" ./cmd/landrun)
	mv "$work/landrun" "$out/landrun"
fi
printf '%s: %s\n' "$out/landrun" "$("$out/landrun" --version)"
