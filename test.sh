#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"

usage() {
	cat <<'END'
Usage: ./test.sh [--quick | --long] [--fresh] [-- flags of go test]

Runs every test of every module, without go's test cache, and fails if one fails. It ends with a
table of how each backend did in the conformance suite. All but a few packages run under the race
detector, see docs/decisions/033-race-detector.md. Tests that can go on for any time draw few seeds;
--long draws many.

It needs Go and a C compiler (for the race detector). It fetches everything else into caches:
etcd is built; ZooKeeper, Quartz, Java, PostgreSQL, pgbouncer, MariaDB and Chromium are the system's or
come from apt-get, which only downloads them; axe-core comes from npm. Nothing is installed and no
privileges are needed.

  --quick   only what needs no server, without the longest tests: the registry in memory, the
            decisions, the loops, the executor, the suite. Under two minutes on two cores, if go
            has built the packages before
  --long    the same tests with more seeds, states and rounds, for some hours: before a release
  --fresh   start from empty caches, which are removed afterwards, and without the system's Java
            and ZooKeeper, as on a machine that has never seen this repository
  --help    print this

  ./test.sh -- -run Lock -v     only tests of that name, with their output
  ./test.sh -- -timeout 20m     the time-out of each package; 45m by default, 5h with --long

These environment variables replace what would be fetched:

  ROTA_ETCD                 an etcd binary; tested with 3.7
  ROTA_ZOOKEEPER_CLASSPATH  jars of ZooKeeper and its dependencies, separated by ':'; tested with 3.8
  ROTA_JAVA                 a java binary; tested with 17. By default JAVA_HOME, then PATH
  ROTA_QUARTZ_CLASSPATH     jars of Quartz and slf4j, separated by ':'; tested with 2.3.2
  ROTA_CHROMIUM             a chromium binary; tested with 148
  ROTA_AXE                  the script of axe-core; tested with 4.14
  ROTA_IGNORE_SYSTEM        if not empty, the system's Java, ZooKeeper, Quartz, etcd and Chromium are
                            not used
  XDG_CACHE_HOME            the directory of caches, by default ~/.cache; rota/ in it is ours
END
}

fresh=false quick=false long=false
while (($# > 0)); do
	case $1 in
	--fresh) fresh=true ;;
	--quick) quick=true ;;
	--long) long=true ;;
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

if $quick && { $fresh || $long; }; then
	usage >&2
	exit 2
fi

export GOFLAGS='-mod=readonly -vet=off' GOWORK=off # ./lint.sh vets
timeout=45m
unset ROTA_LONG
if $long; then
	export ROTA_LONG=1
	timeout=5h
fi

if $quick; then
	# Packages whose tests start servers or processes, or simulate for long, are left out. Tests of examples that do so have OnAServer in
	# their names.
	with_servers='/(registry/(etcd|zookeeper)|conformance/(child|tcpproxy)|internal/test/(budget|fleet|mutate|simulate|storelog|testserver|usercode))(/|$)'
	longest='InRealTime|BelowDirectory|FindEachSaboteur|AllowRefusalByTheHandle|UnderOverload|IsTheMostEven|MovesTheShareByWeight|Exploration|Guards_AreAllCaught|TestUnoffered|TestElasticJob|TestStrategies_Compared|TestDecisions|AgreesWithQuartz|RefusesWhatQuartzRefuses|OnAServer'
	packages=$(go list ./... | grep -vE "$with_servers")
	# shellcheck disable=SC2086 # one argument for each package
	if go test -race -count=1 -skip "$longest" "$@" $packages; then
		echo "test: quick ok in ${SECONDS} s"
		exit
	fi
	echo "test: quick FAIL in ${SECONDS} s" >&2
	exit 1
fi

work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT # go makes its modules read-only
if $fresh; then
	export GOMODCACHE=$work/mod GOCACHE=$work/build XDG_CACHE_HOME=$work/other ROTA_IGNORE_SYSTEM=1
	unset ROTA_ETCD ROTA_ZOOKEEPER_CLASSPATH ROTA_JAVA ROTA_QUARTZ_CLASSPATH ROTA_CHROMIUM ROTA_AXE
fi
export ROTA_CONFORMANCE_REPORT=$work/reports
mkdir "$ROTA_CONFORMANCE_REPORT"

status=0

# Tests would fetch the servers too, but would keep the processors busy beside tests of timing.
go run ./internal/test/testrun provision

# One package more at a time than there are processors, since those with servers mostly wait.
packages=$(($(getconf _NPROCESSORS_ONLN) + 1))

with_race=$(go list ./... | grep -vE '/internal/(group/(balance|explore|planning)|test/(budget|simulate))$')

# test_module tests a module. One that go.work lists is tested in the workspace. The root's is not, which proves that its go.mod is
# complete. Its packages that take longest begin first.
test_module() {
	local dir=$1 work_file=off patterns=(./...) began=$SECONDS failed=0
	shift
	if [[ $dir == . ]]; then
		# shellcheck disable=SC2206 # one pattern for each package
		patterns=(./registry/... $with_race)
	elif grep -q "^	$dir\$" go.work; then
		work_file=
	fi
	(cd "$dir" && GOWORK=$work_file go test -race -count=1 -timeout="$timeout" "$@" "${patterns[@]}" </dev/null) || failed=1
	echo "test: module $dir in $((SECONDS - began)) s"
	return "$failed"
}

# test_one_by_one tests the modules whose directories it reads, one package at a time.
test_one_by_one() {
	local dir failed=0
	while read -r dir; do
		test_module "$dir" -p 1 "$@" || failed=1
	done
	return "$failed"
}

# The other modules are tested beside the root's, since their packages mostly wait for stores: PostgreSQL as a registry, which takes
# longest, and beside it all others. The tools have a module each and no tests.
echo ./registry/postgres | test_one_by_one "$@" >"$work/postgres" 2>&1 &
others=($!)
find . -mindepth 2 -name go.mod -not -path './internal/tools/*' -not -path './registry/postgres/*' -exec dirname {} + | sort |
	test_one_by_one "$@" >"$work/others" 2>&1 &
others+=($!)

# Packages in which the race detector is of little use are tested without it, and some fleets of the simulation with it as well.
without_race=(./internal/group/{balance,explore,planning} ./internal/test/{budget,simulate})
if $long; then go test -race -count=1 -timeout="$timeout" -p "$packages" "$@" "${without_race[@]}" || status=1; fi
go test -count=1 -timeout="$timeout" -p "$packages" "$@" "${without_race[@]}" || status=1
go test -count=1 -timeout="$timeout" ./internal/test/fleet -run HostileRecords "$@" || status=1
go test -race -count=1 -timeout="$timeout" ./internal/test/simulate -run 'Fleet|Stoppable' \
	-simulate.seeds=3 -simulate.edits=1 -simulate.defines=1 -simulate.day=2h "$@" || status=1

# A build that ends a test at a call of user code under a mutex, and at mutexes that are locked in both orders.
go test -count=1 -timeout=30m -tags rotacheck -skip 'TestStoreClock|TestStats_OfJobs|TestLog_Runs|TestExplain' "$@" \
	./internal/mutex ./internal/contain ./internal/group/{claimer,elector,eventlog,leader,member} \
	./executor/... ./handler ./history ./coordinator || status=1

test_module . -p "$packages" "$@" || status=1
for lane in "${others[@]}"; do
	wait "$lane" || status=1
done
cat "$work/postgres" "$work/others"

go run ./internal/test/testrun table "$ROTA_CONFORMANCE_REPORT" || status=1

if ((status == 0)); then
	echo "test: ok in ${SECONDS} s"
else
	echo "test: FAIL in ${SECONDS} s" >&2
fi
exit "$status"
