#!/usr/bin/env bash
# Makes packages: build.sh KIND... with deb, rpm, tarball. `make packages` calls it.
#
#   VERSION             as git describe says it (version.sh makes it fit); default: that of the checkout
#   SOURCE_DATE_EPOCH   time of all files; default: that of the last commit
#   OUT                 folder of the packages; default: dist
#   PROGRAMS            folder with programs that are built already; default: they are built
#   TOOLS               programs that run here, which are asked for pages and completions; default: PROGRAMS, or built
#   COMPRESSION         of the Debian package: gzip, or none, as tests want it
#   GOARCH              of the programs
#
# The same commit gives the same bytes, whoever makes them and when.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=../../test/lib.sh
. test/lib.sh

[ $# -gt 0 ] || fail "which packages? deb, rpm, tarball"
for kind in "$@"; do
  case $kind in deb | rpm | tarball) ;; *) fail "no package of kind $kind: deb, rpm, tarball" ;; esac
done

GO=${GO:-go}
VERSION=$(bash deploy/package/version.sh "${VERSION:-$(git describe --tags --always --dirty)}" "$(git rev-list --count HEAD 2>/dev/null || echo 0)")
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
GOARCH=${GOARCH:-$($GO env GOARCH)}
OUT=$(realpath -m "${OUT:-dist}")
export VERSION SOURCE_DATE_EPOCH GOARCH
export LC_ALL=C TZ=UTC
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export STAGE=$work/root
mkdir -p "$OUT" "$STAGE"

if [ -z "${PROGRAMS:-}" ]; then
  PROGRAMS=$work/bin
  CGO_ENABLED=0 $GO build -trimpath -buildvcs=false -o "$PROGRAMS/" \
    -ldflags "-s -w -X policyd.dev/policyd/internal/buildinfo.Version=$VERSION" ./cmd/...
fi
tools=${TOOLS:-$PROGRAMS}
if [ -z "${TOOLS:-}" ] && [ "$GOARCH" != "$($GO env GOHOSTARCH)" ]; then
  tools=$work/tools
  GOARCH='' CGO_ENABLED=0 $GO build -trimpath -o "$tools/" ./cmd/...
fi

# put MODE FOLDER FILE... installs files of the checkout.
put() {
  local mode=$1 folder=$2
  shift 2
  install -d "$STAGE$folder"
  install -m "$mode" "$@" "$STAGE$folder/"
}

for program in "$PROGRAMS"/*; do put 755 /usr/bin "$program"; done
put 644 /usr/lib/systemd/system deploy/systemd/*.service deploy/systemd/*.socket
put 644 /usr/lib/systemd/user deploy/systemd/user/*
put 644 /usr/lib/sysusers.d deploy/systemd/sysusers.d/*
put 644 /usr/lib/tmpfiles.d deploy/systemd/tmpfiles.d/*
for catalog in deploy/systemd/*.catalog; do
  [ ! -e "$catalog" ] || put 644 /usr/lib/systemd/catalog "$catalog"
done
put 644 /etc/policyd deploy/policyd.yaml deploy/runc.yaml
[ ! -e deploy/nri.yaml ] || put 644 /etc/policyd deploy/nri.yaml

put 644 /usr/share/policyd/prometheus deploy/prometheus/*.yml
put 644 /usr/share/policyd/grafana deploy/grafana/*.json
put 644 /usr/share/policyd/containers deploy/containers/*
put 644 /usr/share/policyd/systemd deploy/systemd/policyd.service.d/*

doc=/usr/share/doc/policyd
put 644 $doc README.md LICENSE
# What people find beside the pages: the documents and their examples, links and all.
(cd docs && find . -type f -print0 | sort -z | xargs -0 -I{} install -D -m 644 {} "$STAGE$doc/docs/{}")
gzip -9n <CHANGELOG.md >"$STAGE$doc/changelog.gz"
bash deploy/package/licenses.sh >"$STAGE$doc/third-party-licenses"

"$tools/policyctl" man "$STAGE/usr/share/man/man1"
completions() { "$tools/policyctl" completion "$1"; }
install -d "$STAGE"/usr/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
completions bash >"$STAGE/usr/share/bash-completion/completions/policyctl"
completions zsh >"$STAGE/usr/share/zsh/site-functions/_policyctl"
completions fish >"$STAGE/usr/share/fish/vendor_completions.d/policyctl.fish"

GOARCH='' $GO run ./deploy/package/pages -programs "$tools" -version "$VERSION" -date "$SOURCE_DATE_EPOCH" -out "$STAGE/usr/share/man"
find "$STAGE/usr/share/man" -type f -name '*.[1-8]' -exec gzip -9n {} +

# settle gives every file the same time, and folders the mode they have everywhere.
settle() {
  find "$STAGE" -type d -exec chmod 755 {} +
  find "$STAGE" -depth -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

nfpm() { # KIND
  settle
  # nfpm fills in variables in some values alone.
  sed "/^deb:/,/^rpm:/s/compression: .*/compression: ${COMPRESSION:-gzip}/" deploy/package/nfpm.yaml >"$work/nfpm.yaml"
  tool nfpm package --config "$work/nfpm.yaml" --packager "$1" --target "$OUT/" >/dev/null
}

package_tarball() {
  local name=policyd-$VERSION-linux-$GOARCH
  settle
  install -m 755 deploy/package/install.sh "$STAGE/install.sh"
  settle
  tar --create --directory "$work" --transform "s,^root,$name," --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
    --owner=0 --group=0 --numeric-owner --format=gnu root | gzip -6n >"$OUT/$name.tar.gz"
  rm "$STAGE/install.sh"
}

package_rpm() { nfpm rpm; }

# What only Debian wants comes last.
package_deb() {
  put 644 $doc deploy/package/deb/copyright
  rm "$STAGE$doc/LICENSE"
  mv "$STAGE/usr/share/zsh/site-functions" "$STAGE/usr/share/zsh/vendor-completions"
  put 644 /usr/share/lintian/overrides deploy/package/deb/overrides/policyd
  printf 'policyd (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- policyd maintainers <maintainers@policyd.dev>  %s\n' \
    "$VERSION" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$STAGE$doc/changelog.Debian.gz"
  nfpm deb
}

for kind in tarball rpm deb; do
  [[ " $* " != *" $kind "* ]] || "package_$kind"
done
(cd "$OUT" && sha256sum -- policyd[_-]*.deb policyd[_-]*.rpm policyd[_-]*.tar.gz 2>/dev/null >SHA256SUMS || true)
note "packages of $VERSION in $OUT"
