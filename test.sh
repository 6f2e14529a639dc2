#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

usage() {
	cat <<'END'
Usage: ./test.sh [--fresh] [-- flags of go test]

Runs every test of every module under the race detector, none from go's test cache, and
fails if one fails. It needs Go and a C compiler (for the race detector). What else it
needs it fetches into caches.

  --fresh   start from empty caches, which are removed afterwards: what a machine that
            has never seen this repository has to do
  --help    print this

  ./test.sh -- -run Lock -v     only tests named like that, with their output
  ./test.sh -- -timeout 20m     each package may take that long; 30m if not said
END
}

fresh=false
while (($# > 0)); do
	case $1 in
	--fresh) fresh=true ;;
	--help)
		usage
		exit
		;;
	--)
		shift
		break
		;;
	*)
		usage >&2
		exit 2
		;;
	esac
	shift
done

export GOFLAGS=-mod=readonly GOWORK=off
if $fresh; then
	caches=$(mktemp -d)
	trap 'chmod -R u+w "$caches" && rm -rf "$caches"' EXIT # go makes its modules read-only
	export GOMODCACHE=$caches/mod GOCACHE=$caches/build XDG_CACHE_HOME=$caches/other
fi

status=0

# The tools have a module each and no tests.
while read -r mod; do
	(cd "$(dirname "$mod")" && go test -race -count=1 -timeout=30m "$@" ./... </dev/null) || status=1
done < <(find . -name go.mod -not -path './internal/tools/*' | sort)

if ((status == 0)); then
	echo "test: ok in ${SECONDS} s"
else
	echo "test: FAIL in ${SECONDS} s" >&2
fi
exit "$status"
