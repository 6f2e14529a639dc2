#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

usage() {
	cat <<'END'
Usage: ./test.sh [--fresh] [-- flags of go test]

Runs every test of every module under the race detector, none from go's test cache, and
fails if one fails. At the end stands how each backend did in the conformance suite.

It needs Go and a C compiler (for the race detector). What else it needs it fetches into
caches: etcd is built, ZooKeeper and Java are taken from the system or downloaded with
apt-get, which changes nothing in the system and needs no privileges.

  --fresh   start from empty caches, which are removed afterwards, and without Java and
            ZooKeeper of the system: what a machine that has never seen this repository
            has to do
  --help    print this

  ./test.sh -- -run Lock -v     only tests named like that, with their output
  ./test.sh -- -timeout 20m     each package may take that long; 30m if not said

Variables of the environment override what would be fetched:

  ROTA_ETCD                 an etcd binary; tested is 3.7
  ROTA_ZOOKEEPER_CLASSPATH  jars of ZooKeeper and of what it needs, with ':' between; tested is 3.8
  ROTA_JAVA                 a java binary; tested is 17. Else JAVA_HOME and PATH count
  ROTA_IGNORE_SYSTEM        if not empty, Java and ZooKeeper of the system are not used
  XDG_CACHE_HOME            where caches are, ~/.cache if not said; ours is rota/ in there
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
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT # go makes its modules read-only
if $fresh; then
	export GOMODCACHE=$work/mod GOCACHE=$work/build XDG_CACHE_HOME=$work/other ROTA_IGNORE_SYSTEM=1
	unset ROTA_ETCD ROTA_ZOOKEEPER_CLASSPATH ROTA_JAVA
fi
export ROTA_CONFORMANCE_REPORT=$work/reports
mkdir "$ROTA_CONFORMANCE_REPORT"

status=0

# Tests would get the servers too, but while other tests wait for what needs a quick machine.
go run ./internal/test/testrun provision

# One package more at a time than there are processors: those with servers mostly wait.
packages=$(($(getconf _NPROCESSORS_ONLN) + 1))

# The tools have a module each and no tests. A module that go.work lists is tested in the
# workspace. The root's is not, which proves that its go.mod is complete.
while read -r dir; do
	if [[ $dir != . ]] && grep -q "^	$dir\$" go.work; then export GOWORK=; else export GOWORK=off; fi
	(cd "$dir" && go test -race -count=1 -timeout=30m -p "$packages" "$@" ./... </dev/null) || status=1
done < <(find . -name go.mod -not -path './internal/tools/*' -exec dirname {} + | sort)
export GOWORK=off

go run ./internal/test/testrun table "$ROTA_CONFORMANCE_REPORT" || status=1

if ((status == 0)); then
	echo "test: ok in ${SECONDS} s"
else
	echo "test: FAIL in ${SECONDS} s" >&2
fi
exit "$status"
