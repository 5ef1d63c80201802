#!/bin/sh
# Builds landrun (github.com/zouuup/landrun), which the benchmarks compare with,
# from the Go module proxy into the cache folder, in a module of its own.
set -eu
version=${1:-latest}
out=${XDG_CACHE_HOME:-$HOME/.cache}/policyd/bench
mkdir -p "$out"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
go mod init bench.invalid/landrun 2>/dev/null
go get "github.com/zouuup/landrun@$version"
CGO_ENABLED=0 go build -o "$out/landrun" github.com/zouuup/landrun/cmd/landrun
"$out/landrun" --version
