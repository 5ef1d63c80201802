#!/bin/sh
# Builds landrun (github.com/zouuup/landrun), which the benchmarks compare with,
# from the Go module proxy into the cache folder, in a module of its own.
set -eu
version=${1:-latest}
out=${XDG_CACHE_HOME:-$HOME/.cache}/policyd/bench
mkdir -p "$out"
GOBIN="$out" CGO_ENABLED=0 go install "github.com/zouuup/landrun/cmd/landrun@$version"
"$out/landrun" --version
