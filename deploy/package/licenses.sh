#!/usr/bin/env bash
# Prints the licences of what is linked into the programs: the modules, and Go itself.
set -euo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C

# print NAME FILE...
print() {
  printf '%s\n%s\n\n' "$1" "${1//?/=}"
  shift
  for f in "$@"; do
    cat "$f"
    echo
  done
}

echo "The programs of policyd are linked from policyd's own code (Apache-2.0) and from the modules below."
echo
print "Go $(go env GOVERSION)" "$(go env GOROOT)/LICENSE"
CGO_ENABLED=0 go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{"\t"}}{{.Dir}}{{end}}{{end}}' ./cmd/... | sort -u |
  while IFS=$'\t' read -r name dir; do
    mapfile -t files < <(find "$dir" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) | sort)
    if [ ${#files[@]} = 0 ]; then
      # A module inside of a repository has it at the top.
      mapfile -t files < <(find "$(dirname "$dir")" -maxdepth 1 -type f -iname 'licen[cs]e*' | sort)
    fi
    [ ${#files[@]} -gt 0 ] || { echo "no licence in module $name" >&2; exit 1; }
    print "$name" "${files[@]}"
  done
