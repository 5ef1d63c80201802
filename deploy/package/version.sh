#!/usr/bin/env bash
# Makes a version that Debian and RPM order as it is meant of what `git describe --tags --always --dirty` says:
#
#   v1.4.0              1.4.0
#   v1.4.0-rc.1         1.4.0~rc.1               before 1.4.0
#   v1.4.0-7-gabc1234   1.4.0+7.gabc1234         after 1.4.0
#   abc1234             0.0.0+COUNT.gabc1234     no tag yet; COUNT commits so far
#   ...-dirty           ....dirty                after the same without it
#
# Usage: version.sh DESCRIBED [COUNT]
set -euo pipefail

described=${1:?what git describe says}
count=${2:-0}

dirty=
if [[ $described == *-dirty ]]; then
  described=${described%-dirty}
  dirty=.dirty
fi
ahead=
if [[ $described =~ ^(.+)-([0-9]+)-g([0-9a-f]+)$ ]]; then
  described=${BASH_REMATCH[1]}
  ahead="+${BASH_REMATCH[2]}.g${BASH_REMATCH[3]}"
fi
if [[ $described =~ ^v?([0-9]+(\.[0-9]+)*)$ ]]; then
  version=${BASH_REMATCH[1]}
elif [[ $described =~ ^v?([0-9]+(\.[0-9]+)*)-([0-9A-Za-z.]+)$ ]]; then
  version=${BASH_REMATCH[1]}~${BASH_REMATCH[3]}
elif [[ $described =~ ^v?([0-9]+(\.[0-9]+)*([~+][0-9A-Za-z.]+)*)$ ]]; then
  version=${BASH_REMATCH[1]} # made by this script
elif [[ -z $ahead && $described =~ ^[0-9a-f]{7,40}$ ]]; then
  version=0.0.0+$count.g$described
else
  echo "version.sh: $1 is no version: want v1.2.3 or what git describe makes of such a tag" >&2
  exit 1
fi
[[ -z $dirty || $version$ahead == *+* ]] || dirty=+dirty
echo "$version$ahead$dirty"
