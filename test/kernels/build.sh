#!/bin/bash
# Makes the kernels the tests run in, once, in a cache folder outside the checkout:
#
#   CACHE/uml-6.1/linux       Debian 12's user-mode-linux package: Smack, no Landlock
#   CACHE/uml-7.3/linux       built from Debian's linux-source package with uml.config: Landlock and Smack
#   CACHE/uml-7.3/sandboxer   the kernel's sample Landlock launcher from the same source, for benchmarks
#
# CACHE is ${POLICYD_KERNEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/policyd/kernels}. Each name is a link into
# CACHE/store, where a kernel is keyed by the hash of this recipe and by the version of its package; a store entry
# appears by one rename when it is whole. To build anew with newer packages, remove CACHE.
#
# Packages come from the Debian mirror in this machine's own apt sources (or $POLICYD_DEBIAN_MIRROR), through an apt
# configuration that lives only as long as this script. Nothing is installed, except missing build tools when run as root.
#
# usage: build.sh            make what is missing
#        build.sh --print    print "name path" of every file above, built or not
set -euo pipefail
export LC_ALL=C
# What a calling make or a cross-compiling shell has set is not meant for the kernel's build.
unset MAKEFLAGS MFLAGS MAKELEVEL ARCH CROSS_COMPILE LLVM CC CFLAGS LDFLAGS KBUILD_OUTPUT KCONFIG_CONFIG O
export KBUILD_BUILD_USER=policyd KBUILD_BUILD_HOST=test

recipe=1 # raise when a step below changes what it makes
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
options=$here/uml.config
# shellcheck source=test/apt-temp.sh
. "$here/../apt-temp.sh"
suite_old=bookworm          # has user-mode-linux 6.1
suite_new=trixie-backports  # has linux-source-7.3

if [ -n "${POLICYD_KERNEL_CACHE:-}" ]; then
	cache=$POLICYD_KERNEL_CACHE
elif [ -n "${XDG_CACHE_HOME:-}" ]; then
	cache=$XDG_CACHE_HOME/policyd/kernels
else
	cache=${HOME:?set HOME or POLICYD_KERNEL_CACHE}/.cache/policyd/kernels
fi
case $cache in
/*) ;;
*) cache=$PWD/$cache ;;
esac

# Every word of the message on one line, so that it also reads well in a CI log.
die() {
	printf 'kernels: %s\n' "$*" >&2
	exit 1
}

# step WORDS -- COMMAND...: runs the command with its output in a log, showing the seconds it takes.
step() {
	local words=()
	while [ "$1" != -- ]; do words+=("$1"); shift; done
	shift
	local what="${words[*]}" start=$SECONDS pid shown=0 rc=0
	set -m # a process group of its own, which the traps below can end
	"$@" >"$work/log" 2>&1 </dev/null 9>&- &
	pid=$!
	job=$pid
	set +m
	[ -t 1 ] || printf 'kernels: %s ...\n' "$what"
	while kill -0 "$pid" 2>/dev/null; do
		if [ -t 1 ]; then
			printf '\rkernels: %s ... %d s%s ' "$what" $((SECONDS - start)) "$(compiled)"
		elif [ $((SECONDS - start)) -ge $((shown + 30)) ]; then
			shown=$((SECONDS - start))
			printf 'kernels: %s ... %d s%s\n' "$what" "$shown" "$(compiled)"
		fi
		sleep 0.5
	done
	wait "$pid" || rc=$?
	job=
	if [ "$rc" -ne 0 ]; then
		[ ! -t 1 ] || printf '\n'
		cp "$work/log" "$cache/failed.log"
		tail -n 30 "$work/log" >&2
		die "$what: failed with status $rc after $((SECONDS - start)) s (whole log: $cache/failed.log)"
	fi
	if [ -t 1 ]; then
		printf '\rkernels: %s: %d s\033[K\n' "$what" $((SECONDS - start))
	else
		printf 'kernels: %s: done in %d s\n' "$what" $((SECONDS - start))
	fi
}

# Ends the running step with all its descendants before their files go away.
cleanup() {
	[ -z "$job" ] || kill -KILL -- "-$job" 2>/dev/null || true
	rm -rf "$work"
}

# How many files the running make has compiled, as ", N files", when it is the compile step.
compiled() {
	local n
	n=$(grep -c '^  CC ' "$work/log" 2>/dev/null || true)
	[ "${n:-0}" -eq 0 ] || printf ', %d files compiled' "$n"
}

# The store entry of a name and key, whatever the package version: STORE/NAME-VERSION-KEY.
stored() {
	local entry newest=
	for entry in "$cache/store/$1"-*-"$2"; do
		[ ! -f "$entry/complete" ] || newest=$entry
	done
	printf '%s' "$newest"
}

# Points CACHE/NAME at a store entry in one step.
link() {
	local target=store/${2##*/}
	[ "$(readlink "$cache/$1" 2>/dev/null || true)" != "$target" ] || return 0
	ln -sfn "$target" "$cache/.$1.$$"
	mv -T "$cache/.$1.$$" "$cache/$1"
}

# publish NAME VERSION KEY DIR: makes the whole directory a store entry by one rename, after its bytes are on disk.
publish() {
	local entry=$cache/store/$1-$2-$3
	printf '%s\n' "$2" >"$4/complete"
	sync "$4"/* "$4"
	rm -rf "$entry"
	mv -T "$4" "$entry"
	sync "$cache/store"
	link "$1" "$entry"
}

apt_setup() {
	command -v dpkg >/dev/null && [ "$(dpkg --print-architecture)" = amd64 ] || die "user-mode-linux runs on Debian's amd64 only"
	apt_temp "$work/apt" "$suite_old" "$suite_new" 2>"$work/log" || die "$(cat "$work/log")"
	mkdir -p "$work/deb"
	step read the package lists -- apt-get "${apt_opts[@]}" -o APT::Update::Error-Mode=any update
}

# fetch PACKAGE SUITE: downloads it and sets $deb to the file and $version to the package's version.
fetch() {
	rm -f "$work/deb"/*
	step download "$1" from "$2" -- in_dir "$work/deb" apt-get "${apt_opts[@]}" download "$1/$2"
	deb=$(echo "$work/deb"/*.deb)
	version=$(dpkg-deb -f "$deb" Version)
}

in_dir() {
	cd "$1"
	shift
	"$@"
}

# The newest kernel source of the suite that is a 7.x from 7.3 on; 7.3 itself when the suite has it.
source_package() {
	apt-cache "${apt_opts[@]}" search --names-only '^linux-source-7\.[0-9]+$' |
		awk '{ split($1, v, "."); n = v[2] + 0; if (n == 3) three = $1; if (n >= 3 && n > best) { best = n; name = $1 } }
			END { print three != "" ? three : name }'
}

need_tools() {
	local tool missing=()
	# Command and the Debian package that has it.
	while read -r tool pkg; do
		command -v "$tool" >/dev/null || missing+=("$pkg")
	done <<-TOOLS
		gcc gcc
		make make
		flex flex
		bison bison
		bc bc
		xz xz-utils
		strip binutils
	TOOLS
	[ -e /usr/include/x86_64-linux-gnu/sys/types.h ] || [ -e /usr/include/sys/types.h ] || missing+=(libc6-dev)
	[ "${#missing[@]}" -gt 0 ] || return 0
	[ "$(id -u)" = 0 ] || die "build tools are missing: apt-get install ${missing[*]}"
	step install "${missing[@]}" -- install_tools "${missing[@]}"
}

install_tools() {
	export DEBIAN_FRONTEND=noninteractive
	apt-get -q install -y --no-install-recommends "$@" ||
		{ apt-get -q update && apt-get -q install -y --no-install-recommends "$@"; }
}

# Fails, naming them, when options of uml.config are not in the configuration the kernel ended up with.
check_options() {
	local line lost=()
	while IFS= read -r line; do
		case $line in
		CONFIG_*) grep -qxF -- "$line" .config || lost+=("$line") ;;
		'# CONFIG_'*' is not set')
			line=${line#\# }
			line=${line%% *}
			! grep -q "^$line=" .config || lost+=("$line=n")
			;;
		esac
	done <"$options"
	[ "${#lost[@]}" -eq 0 ] || {
		echo "options that did not take effect: ${lost[*]}"
		return 1
	}
}

unpack() {
	mkdir "$work/src"
	dpkg-deb --fsys-tarfile "$deb" | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' | xz -dc -T0 |
		tar -x -C "$work/src" --strip-components=1
	rm -f "$deb"
}

configure() {
	cd "$work/src"
	make ARCH=um allnoconfig
	scripts/kconfig/merge_config.sh -m .config "$options"
	make ARCH=um olddefconfig
	check_options
}

# The sample needs the headers of its own kernel; a static binary also runs where only a few paths are allowed.
sandboxer() {
	cd "$work/src"
	make ARCH=x86 headers
	gcc -O2 -static -Wall -isystem usr/include -o "$out/sandboxer" samples/landlock/sandboxer.c
	strip "$out/sandboxer"
}

build_old() {
	fetch user-mode-linux "$suite_old"
	case $version in
	6.1*) ;;
	*) die "user-mode-linux of $suite_old is $version, not 6.1" ;;
	esac
	out=$work/out-old
	mkdir -p "$out"
	dpkg-deb --fsys-tarfile "$deb" | tar -xO ./usr/bin/linux.uml >"$out/linux"
	chmod 755 "$out/linux"
	"$out/linux" --version >/dev/null || die "the kernel of user-mode-linux $version does not run here"
	publish uml-6.1 "$version" "$key_old" "$out"
}

build_new() {
	local name
	need_tools
	name=$(source_package)
	[ -n "$name" ] || die "$suite_new has no linux-source-7.3 or later 7.x"
	fetch "$name" "$suite_new"
	step unpack "$name" "$version" -- unpack
	step configure the kernel -- configure
	step compile the kernel "(minutes)" -- make -C "$work/src" ARCH=um -j"$(nproc)" linux
	out=$work/out-new
	mkdir -p "$out"
	strip -o "$out/linux" "$work/src/linux"
	cp "$work/src/.config" "$out/config"
	"$out/linux" --version >/dev/null || die "the kernel just built does not run here"
	step compile the sample sandboxer -- sandboxer
	publish uml-7.3 "$version" "$key_new" "$out"
}

key_old=r$recipe
key_new=r$recipe-$(sha256sum "$options" | cut -c1-12)

# Links what the store has; true when nothing is missing.
link_stored() {
	local old new
	old=$(stored uml-6.1 "$key_old")
	new=$(stored uml-7.3 "$key_new")
	[ -z "$old" ] || link uml-6.1 "$old"
	[ -z "$new" ] || link uml-7.3 "$new"
	[ -n "$old" ] && [ -n "$new" ]
}

print_paths() {
	printf 'uml-6.1 %s\numl-7.3 %s\nsandboxer %s\n' \
		"$cache/uml-6.1/linux" "$cache/uml-7.3/linux" "$cache/uml-7.3/sandboxer"
}

case ${1:-} in
--print)
	print_paths
	exit 0
	;;
'') ;;
*)
	echo "usage: build.sh [--print]" >&2
	exit 2
	;;
esac

mkdir -p "$cache/store"
exec 9>"$cache/lock"
if ! flock -n 9; then
	echo "kernels: waiting for another build in $cache"
	flock 9
fi
if link_stored; then
	echo "kernels: ready in $cache"
	exit 0
fi

rm -rf "$cache"/build.* # of a run that was killed; the lock says that none is running
work=$(mktemp -d "$cache/build.XXXXXX")
job=
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
avail=$(df -Pk "$cache" | awk 'NR == 2 { print $4 }')
[ "$avail" -ge 3000000 ] || die "$cache has $((avail / 1024)) MB free, building needs 3000 MB"

apt_setup
[ -n "$(stored uml-6.1 "$key_old")" ] || build_old
[ -n "$(stored uml-7.3 "$key_new")" ] || build_new
link_stored || die "the store in $cache is not whole after the build"
rm -f "$cache/failed.log"
echo "kernels: ready in $cache after $SECONDS s"
