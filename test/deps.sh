#!/usr/bin/env bash
# Installs what the tests need beside Go. As root on Debian; otherwise says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=test/lib.sh
. test/lib.sh

# command:package
wanted=(gcc:gcc make:make git:git python3:python3 bash:bash openssl:openssl curl:curl setpriv:util-linux
  getent:libc-bin busybox:busybox-static musl-gcc:musl-tools perl:perl vi:vim-tiny top:procps unshare:util-linux
  promtool:prometheus lintian:lintian rpm:rpm deb-systemd-helper:init-system-helpers runc:runc crun:crun
  podman:podman conmon:conmon containerd:containerd dockerd:docker.io etcd:etcd-server ip:iproute2)

missing=()
[ -d /etc/ssl/certs ] && [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
for w in "${wanted[@]}"; do
  command -v "${w%%:*}" >/dev/null || missing+=("${w##*:}")
done
if [ ${#missing[@]} = 0 ]; then
  exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  fail "missing: run as root: apt-get install ${missing[*]}"
fi
note "installing ${missing[*]}"
# Programs are wanted, not their daemons: that is the run level in which invoke-rc.d starts none.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
