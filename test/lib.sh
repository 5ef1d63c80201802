# What the scripts of this folder share. Sourced, from the root of the checkout.

export CGO_ENABLED=${CGO_ENABLED:-0}

note() { printf '== %s\n' "$*" >&2; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

tool() { go tool -modfile="$ROOT/tools/go.mod" "$@"; }

ROOT=$PWD
