#!/usr/bin/env bash
# Usage: ./lint.sh
#
# Runs go vet and staticcheck over every module and gofumpt over every file, reports all
# they find, and fails if that is anything. The tools are pinned in internal/tools/go.mod
# and built by go into its own cache: the first run takes a minute longer. The checks
# that are off stand in staticcheck.conf, with their reasons.
set -euo pipefail
cd "$(dirname "$0")"
export GOFLAGS=-mod=readonly GOWORK=off

readonly tools="$PWD/internal/tools/go.mod"
status=0

unformatted=$(go tool -modfile="$tools" gofumpt -l .)
if [[ -n $unformatted ]]; then
	printf 'not formatted, run "go tool -modfile=internal/tools/go.mod gofumpt -w .":\n%s\n' "$unformatted"
	status=1
fi

while read -r mod; do
	(cd "$(dirname "$mod")" && go vet ./... </dev/null) || status=1
	(cd "$(dirname "$mod")" && go tool -modfile="$tools" staticcheck ./... </dev/null) || status=1
done < <(find . -name go.mod -not -path './internal/tools/*' | sort)

if ((status == 0)); then
	echo "lint: ok in ${SECONDS} s"
else
	echo "lint: FAIL in ${SECONDS} s" >&2
fi
exit "$status"
