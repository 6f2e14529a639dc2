package main

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/dcron-contrib/redisdriver"
	redislock "github.com/go-co-op/gocron-redis-lock/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/hibiken/asynq"
	"github.com/libi/dcron"
	goredis "github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// peer is the common part of the other libraries.
type peer struct {
	assignment
	runs *runLog
}

// everySecond is the schedule of all peers' jobs.
const everySecond = "* * * * * *"

var errUnsupported = errors.New("not supported by this library's worker")

func (p peer) register([]jobSet) error { return errUnsupported }

// skipped returns 0, as no peer counts skipped fires.
func (p peer) skipped(context.Context) (int, error) { return 0, nil }

// recordRun records a run that ends at once. No peer but River passes the scheduled instant,
// so it is the latest one of the schedule: a run that is late by more than a second shows as
// a lost and a doubled fire.
func (p peer) recordRun(job int) {
	p.runs.begin(job, 0, 1, time.Now().Truncate(time.Second)).finish()
}

// eachJob calls add for each job, with the function to run.
func (p peer) eachJob(add func(job int, name string, handle func()) error) error {
	for _, s := range p.Jobs {
		for job := s.First; job < s.First+s.Count; job++ {
			if err := add(job, jobName(job), func() { p.recordRun(job) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// gocronPeer uses the scheduler of gocron with its locker for Redis.
type gocronPeer struct {
	peer
	scheduler gocron.Scheduler
}

func newGocron(a assignment, runs *runLog, _ *slog.Logger) (library, error) {
	locker, err := redislock.NewRedisLocker(goredis.NewClient(&goredis.Options{Addr: a.Store}), redislock.WithTries(1))
	if err != nil {
		return nil, err
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	return &gocronPeer{peer{a, runs}, s}, err
}

func (p *gocronPeer) start(context.Context) error {
	err := p.eachJob(func(_ int, name string, handle func()) error {
		_, err := p.scheduler.NewJob(gocron.CronJob(everySecond, true), gocron.NewTask(handle), gocron.WithName(name))
		return err
	})
	p.scheduler.Start()
	return err
}

func (p *gocronPeer) leave(context.Context) error { return p.scheduler.Shutdown() }

// dcronPeer uses dcron with its driver for Redis.
type dcronPeer struct {
	peer
	cron *dcron.Dcron
}

func newDcron(a assignment, runs *runLog, _ *slog.Logger) (library, error) {
	driver := redisdriver.NewDriver(goredis.NewClient(&goredis.Options{Addr: a.Store}))
	return &dcronPeer{peer{a, runs}, dcron.NewDcronWithOption("bench", driver, dcron.CronOptionSeconds(), dcron.WithLogger(silent{}))}, nil
}

func (p *dcronPeer) start(context.Context) error {
	err := p.eachJob(func(_ int, name string, handle func()) error { return p.cron.AddFunc(name, everySecond, handle) })
	p.cron.Start()
	return err
}

func (p *dcronPeer) leave(context.Context) error {
	p.cron.Stop()
	return nil
}

// asynqPeer runs the tasks of asynq's scheduler. The first instance has the only scheduler,
// since each scheduler enqueues every fire.
type asynqPeer struct {
	peer
	scheduler *asynq.Scheduler // nil on other instances
	server    *asynq.Server
}

// Types of tasks: one fires each second, the other once.
const (
	asynqTask = "fire"
	asynqOnce = "once"
)

func newAsynq(a assignment, runs *runLog, _ *slog.Logger) (library, error) {
	redis := asynq.RedisClientOpt{Addr: a.Store}
	p := &asynqPeer{peer: peer{a, runs}, server: asynq.NewServer(redis, asynq.Config{LogLevel: asynq.FatalLevel})}
	if a.Instance == firstInstance {
		p.scheduler = asynq.NewScheduler(redis, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	}
	return p, nil
}

func (p *asynqPeer) start(context.Context) error {
	err := p.server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		if t.Type() == asynqOnce {
			fire := time.Unix(0, int64(binary.BigEndian.Uint64(t.Payload()[4:])))
			p.runs.begin(int(binary.BigEndian.Uint32(t.Payload())), 0, 1, fire).finish()
			return nil
		}
		p.recordRun(int(binary.BigEndian.Uint32(t.Payload())))
		return nil
	}))
	if err != nil || p.scheduler == nil {
		return err
	}
	err = p.eachJob(func(job int, _ string, _ func()) error {
		_, err := p.scheduler.Register("@every 1s", asynq.NewTask(asynqTask, binary.BigEndian.AppendUint32(nil, uint32(job))))
		return err
	})
	if err != nil {
		return err
	}
	return p.scheduler.Start()
}

func (p *asynqPeer) leave(context.Context) error {
	if p.scheduler != nil {
		p.scheduler.Shutdown()
	}
	p.server.Shutdown()
	return nil
}

// etcdTxnPeer is an idiom of programs that use etcd without a library: each process has a
// cron of its own, and runs a fire if it created the key of the fire.
type etcdTxnPeer struct {
	peer
	client *clientv3.Client
	lease  clientv3.LeaseID
	cron   *cron.Cron
}

func newEtcdTxn(a assignment, runs *runLog, _ *slog.Logger) (library, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcdAddr(a.Store)}, Logger: zap.NewNop()})
	return &etcdTxnPeer{peer: peer{a, runs}, client: client, cron: cron.New(cron.WithSeconds())}, err
}

// etcdAddr returns the host:port of the URL of a store.
func etcdAddr(url string) string {
	const scheme, path = len("etcd://"), len("/bench")
	return url[scheme : len(url)-path]
}

func (p *etcdTxnPeer) start(ctx context.Context) error {
	granted, err := p.client.Grant(ctx, 3600) // deletes the keys some time
	if err != nil {
		return err
	}
	p.lease = granted.ID
	err = p.eachJob(func(_ int, name string, handle func()) error {
		_, err := p.cron.AddFunc(everySecond, func() {
			key := "/fires/" + name + "/" + time.Now().Truncate(time.Second).UTC().Format(time.RFC3339)
			answer, err := p.client.Txn(context.Background()).
				If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
				Then(clientv3.OpPut(key, p.Instance, clientv3.WithLease(p.lease))).Commit()
			if err == nil && answer.Succeeded {
				handle()
			}
		})
		return err
	})
	p.cron.Start()
	return err
}

func (p *etcdTxnPeer) leave(context.Context) error {
	<-p.cron.Stop().Done()
	return p.client.Close()
}

// electionPeer runs the whole cron on the leader of an election of etcd's client.
type electionPeer struct {
	peer
	client *clientv3.Client
	cron   *cron.Cron
	end    context.CancelFunc
	done   sync.WaitGroup
}

func newElection(a assignment, runs *runLog, _ *slog.Logger) (library, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcdAddr(a.Store)}, Logger: zap.NewNop()})
	return &electionPeer{peer: peer{a, runs}, client: client, cron: cron.New(cron.WithSeconds())}, err
}

func (p *electionPeer) start(context.Context) error {
	err := p.eachJob(func(_ int, _ string, handle func()) error {
		_, err := p.cron.AddFunc(everySecond, handle)
		return err
	})
	if err != nil {
		return err
	}
	session, err := concurrency.NewSession(p.client)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	p.end = end
	p.done.Go(func() {
		defer session.Close()
		if concurrency.NewElection(session, rawRoot+"/leader").Campaign(ctx, p.Instance) != nil {
			return
		}
		p.cron.Start()
		select {
		case <-session.Done():
		case <-ctx.Done():
		}
		<-p.cron.Stop().Done()
	})
	return nil
}

func (p *electionPeer) leave(context.Context) error {
	p.end()
	p.done.Wait()
	return p.client.Close()
}

// silent discards the log of dcron.
type silent struct{ discardLogger }

func (silent) Infof(string, ...any)  {}
func (silent) Warnf(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
