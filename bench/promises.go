package main

import (
	"strings"
	"time"
)

// promise states the promises of a library about the fires of a schedule.
type promise struct {
	idiom              string // how the bench uses it
	mayLose, mayDouble bool
	failover, fireTime string
	sharding           string
}

// libraryPromises are the promises by library.
var libraryPromises = map[string]promise{
	"rota": {
		idiom:    "executor.Job; a claim is committed before the run",
		failover: "runs of a crashed instance are made again", fireTime: "yes, with a fence", sharding: "yes",
	},
	"floor": {
		idiom:    "the commits of rota alone",
		mayLose:  true,
		failover: "nothing", fireTime: "no", sharding: "no",
	},
	"gocron": {
		idiom:   "CronJob, WithDistributedLocker(redislock)",
		mayLose: true, mayDouble: true,
		failover: "the next fire runs elsewhere", fireTime: "no", sharding: "no",
	},
	"dcron": {
		idiom:   "AddFunc, redisdriver",
		mayLose: true, mayDouble: true,
		failover: "the next fire after a new list of nodes", fireTime: "no", sharding: "no",
	},
	"asynq": {
		idiom:   "one Scheduler, a Server in each process",
		mayLose: true, mayDouble: true,
		failover: "tasks are retried; fires stop without the scheduler", fireTime: "no", sharding: "no",
	},
	"river": {
		idiom:   "PeriodicJobs, one client in each process",
		mayLose: true, mayDouble: true,
		failover: "jobs are rescued; fires may be missed around a change of leader", fireTime: "yes", sharding: "no",
	},
	"etcd-txn": {
		idiom:    "robfig/cron in each process, a key per fire created in a Txn",
		mayLose:  true,
		failover: "the next fire runs elsewhere", fireTime: "no", sharding: "no",
	},
	"etcd-election": {
		idiom:   "robfig/cron on the leader of concurrency.Election",
		mayLose: true, mayDouble: true,
		failover: "the next leader after the session's TTL of 60 s", fireTime: "no", sharding: "no",
	},
}

// check returns an error if the verdict contradicts the promise.
func (p promise) check(v verdict, skipped int) error {
	if p.mayLose {
		v.gaps = 0
	}
	if p.mayDouble {
		v.doubled = 0
	}
	return v.check(skipped)
}

// peerStores are the stores of the other libraries.
var peerStores = []struct{ library, store string }{
	{"etcd-txn", "etcd"}, {"etcd-election", "etcd"}, {"gocron", "redis"}, {"dcron", "redis"}, {"asynq", "redis"}, {"river", "postgres"},
}

// peerCases are the storms of other libraries, and a crash.
func peerCases() (cases []benchCase) {
	for _, p := range peerStores {
		cases = append(cases, stormCases(p.library, p.store, 2, 100, 500, 2000)...)
	}
	crashed := jobSet{Count: 100, Every: time.Second, Shards: 1}
	const about = "kill one of 3 instances; 100 jobs of one shard each second, default TTL; "
	return append(cases,
		benchCase{"crash-dcron", about + "dcron on redis", failover{"dcron", "redis", 3, crashed, 0, false}.run},
		benchCase{"crash-etcd-default", about + "rota on etcd", failover{"rota", "etcd", 3, crashed, 0, false}.run})
}

// isPeer reports whether a case measures another library.
func isPeer(name string) bool {
	for _, p := range peerStores {
		if strings.Contains(name, "-"+p.library) {
			return true
		}
	}
	return false
}
