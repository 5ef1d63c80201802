# A temporary apt configuration for packages of other Debian suites. Sourced.
#
# Nothing of the machine's own apt is changed: sources, lists and cache lie in a
# folder of the caller's and go with it. The mirror's address is the one in this
# machine's own apt sources (or $POLICYD_DEBIAN_MIRROR).

# The address of Debian's main archive as this machine's own apt uses it, in either form of sources.
apt_temp_mirror() {
	if [ -n "${POLICYD_DEBIAN_MIRROR:-}" ]; then
		printf '%s' "$POLICYD_DEBIAN_MIRROR"
		return
	fi
	local codename
	codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Identifier: Packages' 2>/dev/null |
		awk -v own="$codename" '$3 == "main" && ($2 == own || $2 ~ /^(stable|oldstable|testing|sid|unstable|bookworm|trixie|forky)$/) { print $1; exit }'
}

# apt_temp FOLDER SUITE...: makes the configuration in FOLDER and sets apt_opts, the options for
# apt-get and apt-cache. Says on standard error why it cannot. Read the lists with:
#   apt-get "${apt_opts[@]}" -o APT::Update::Error-Mode=any update
apt_temp() {
	local dir=$1 uri suite keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	shift
	if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
		echo "apt-get and dpkg-deb not found: this needs Debian packages" >&2
		return 1
	fi
	if [ ! -r "$keyring" ]; then
		echo "$keyring not found: apt-get install debian-archive-keyring" >&2
		return 1
	fi
	uri=$(apt_temp_mirror)
	if [ -z "$uri" ]; then
		echo "no Debian archive in this machine's apt sources; set POLICYD_DEBIAN_MIRROR to its address" >&2
		return 1
	fi
	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
	for suite; do
		printf 'deb [arch=amd64 signed-by=%s] %s %s main\n' "$keyring" "$uri" "$suite"
	done >"$dir/sources.list"
	apt_opts=(-q
		-o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null
		-o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
		-o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir/cache"
		-o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root
		-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
		-o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false)
}
