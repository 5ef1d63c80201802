#!/bin/sh
# Installs what lies beside this script: install.sh [ROOT], with ROOT for an image and not this machine. Run it as root.
# Run again, also of a newer version, it replaces programs and units and keeps the configuration, the store and sandboxes.
set -eu
cd "$(dirname "$0")"
root=${1:-}

mkdir -p "$root/usr" "$root/etc/policyd"
# Replaced by rename: a program that runs cannot be written to.
cp -R --preserve=mode --remove-destination usr/. "$root/usr/"
for f in etc/policyd/*; do
	[ -e "$root/$f" ] || cp --preserve=mode "$f" "$root/$f"
done
[ -z "$root" ] || exit 0

if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers policyd.conf
	systemd-tmpfiles --create policyd.conf
	journalctl --update-catalog || true
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart policyd.service
fi
echo "policyd is installed. To have it start with the first call: systemctl enable --now policyd.socket"
