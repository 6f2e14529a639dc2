#!/usr/bin/env bash
# Usage: ./lint.sh [--fix]
#
# Runs go vet and staticcheck over every module, gofumpt over every file, and release/apidiff. Reports all
# findings, and fails if there are any. --fix formats the files with gofumpt first.
#
# The tools are pinned in internal/tools/go.mod and built by go into its own cache: the first
# run takes a minute longer. staticcheck.conf lists the disabled checks with their reasons.
set -euo pipefail
cd "$(dirname "$0")"
export GOFLAGS=-mod=readonly GOWORK=off

readonly tools="$PWD/internal/tools/go.mod"
gofumpt=$(go tool -n -modfile="$tools" gofumpt)
staticcheck=$(go tool -n -modfile="$tools" staticcheck)
status=0

if [[ ${1-} == --fix ]]; then "$gofumpt" -w .; fi
unformatted=$("$gofumpt" -l .)
if [[ -n $unformatted ]]; then
	printf 'not formatted, run "./lint.sh --fix":\n%s\n' "$unformatted"
	status=1
fi

# A module that go.work lists is built in the workspace, others without it.
while read -r dir; do
	if [[ $dir != . ]] && grep -q "^	$dir\$" go.work; then export GOWORK=; else export GOWORK=off; fi
	(cd "$dir" && go vet ./... </dev/null) || status=1
	(cd "$dir" && "$staticcheck" ./... </dev/null) || status=1
done < <(find . -name go.mod -not -path './internal/tools/*' -exec dirname {} + | sort)

release/apidiff || status=1

if ((status == 0)); then
	echo "lint: ok in ${SECONDS} s"
else
	echo "lint: FAIL in ${SECONDS} s" >&2
fi
exit "$status"
