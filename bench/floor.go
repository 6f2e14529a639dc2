package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// floorLibrary only commits what rota commits for the fires of aligned jobs, through the store's client: per
// job a condition on its plan and a write of its claims record. No fleet that commits each fire before its run is
// quicker on that store.
type floorLibrary struct {
	peer
	store   floorStore
	batches []floorBatch
	stop    context.CancelFunc
	done    sync.WaitGroup
	log     *slog.Logger
}

// floorBatch is the jobs that one transaction claims.
type floorBatch struct {
	jobs     []int
	versions []int64 // of the claims records
}

// floorStore commits through the client of a store.
type floorStore interface {
	create(ctx context.Context, key string) error
	// commit writes the claims records of a batch, and notes their versions.
	commit(ctx context.Context, b *floorBatch) error
	close() error
}

// As rota has them for jobs of one shard: the jobs in a transaction, the transactions in flight, and a size of
// records with which a fire sends as many bytes.
const (
	floorJobs    = 57
	floorFlights = 8
)

// floorRecord is a claims record.
var floorRecord = []byte(strings.Repeat("x", 330))

func floorKey(kind string, job int) string {
	return fmt.Sprintf("/bench/namespace/groups/default/%s/%s", kind, jobName(job))
}

func newFloor(a assignment, runs *runLog, log *slog.Logger) (library, error) {
	f := &floorLibrary{peer: peer{a, runs}, log: log}
	scheme, rest, _ := strings.Cut(a.Store, "://")
	addr, _, _ := strings.Cut(rest, "/")
	var err error
	switch scheme {
	case "etcd":
		f.store, err = openFloorEtcd(addr)
	case "zk":
		f.store, err = openFloorZooKeeper(addr)
	default:
		err = fmt.Errorf("no floor of the store %q", a.Store)
	}
	return f, err
}

// start creates the records of every second job, and claims all of them each second.
func (f *floorLibrary) start(ctx context.Context) error {
	mine := 0
	if f.Instance != firstInstance {
		mine = 1
	}
	var cur floorBatch
	for _, s := range f.Jobs {
		for job := s.First; job < s.First+s.Count; job++ {
			if job%2 != mine {
				continue
			}
			for _, kind := range []string{"plans", "claims"} {
				if err := f.store.create(ctx, floorKey(kind, job)); err != nil {
					return err
				}
			}
			cur.jobs, cur.versions = append(cur.jobs, job), append(cur.versions, 0)
			if len(cur.jobs) == floorJobs {
				f.batches, cur = append(f.batches, cur), floorBatch{}
			}
		}
	}
	if len(cur.jobs) > 0 {
		f.batches = append(f.batches, cur)
	}
	running, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.done.Go(func() { f.claim(running) })
	return nil
}

// claim commits all batches each second, and records the runs of each as soon as it is committed. A round that
// takes longer than a second makes the next one late.
func (f *floorLibrary) claim(ctx context.Context) {
	for {
		fire := time.Now().Truncate(time.Second).Add(time.Second)
		if pause(ctx, time.Until(fire)) != nil {
			return
		}
		work := make(chan *floorBatch)
		var flights sync.WaitGroup
		for range floorFlights {
			flights.Go(func() {
				for b := range work {
					if err := f.store.commit(ctx, b); err != nil {
						f.log.Error("no commit", "err", err)
						continue
					}
					for _, job := range b.jobs {
						f.runs.begin(job, 0, 1, fire).finish()
					}
				}
			})
		}
		for i := range f.batches {
			work <- &f.batches[i]
		}
		close(work)
		flights.Wait()
	}
}

func (f *floorLibrary) leave(context.Context) error {
	f.stop()
	f.done.Wait()
	return f.store.close()
}

type floorEtcd struct{ client *clientv3.Client }

func openFloorEtcd(addr string) (floorStore, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	return &floorEtcd{client}, err
}

func (s *floorEtcd) create(ctx context.Context, key string) error {
	_, err := s.client.Put(ctx, key, string(floorRecord))
	return err
}

func (s *floorEtcd) commit(ctx context.Context, b *floorBatch) error {
	var conds []clientv3.Cmp
	var ops []clientv3.Op
	for i, job := range b.jobs {
		claims := floorKey("claims", job)
		conds = append(conds, clientv3.Compare(clientv3.Version(floorKey("plans", job)), "=", 1))
		if b.versions[i] > 0 {
			conds = append(conds, clientv3.Compare(clientv3.ModRevision(claims), "=", b.versions[i]))
		}
		ops = append(ops, clientv3.OpPut(claims, string(floorRecord)))
	}
	answer, err := s.client.Txn(ctx).If(conds...).Then(ops...).Commit()
	if err != nil {
		return err
	}
	if !answer.Succeeded {
		return errors.New("a condition failed")
	}
	for i := range b.versions {
		b.versions[i] = answer.Header.Revision
	}
	return nil
}

func (s *floorEtcd) close() error { return s.client.Close() }

type floorZooKeeper struct{ conn *zk.Conn }

func openFloorZooKeeper(addr string) (floorStore, error) {
	conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(discardLogger{}))
	return &floorZooKeeper{conn}, err
}

// create also creates the parents of a key.
func (s *floorZooKeeper) create(_ context.Context, key string) error {
	_, err := s.conn.Create(key, floorRecord, 0, zk.WorldACL(zk.PermAll))
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	for i := 1; i < len(key); i++ {
		if key[i] == '/' {
			if _, err := s.conn.Create(key[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return err
			}
		}
	}
	_, err = s.conn.Create(key, floorRecord, 0, zk.WorldACL(zk.PermAll))
	return err
}

func (s *floorZooKeeper) commit(_ context.Context, b *floorBatch) error {
	var ops []any
	for i, job := range b.jobs {
		ops = append(ops,
			&zk.CheckVersionRequest{Path: floorKey("plans", job), Version: 0},
			&zk.SetDataRequest{Path: floorKey("claims", job), Data: floorRecord, Version: int32(b.versions[i])})
	}
	answers, err := s.conn.Multi(ops...)
	if err != nil {
		return err
	}
	for i := range b.versions {
		b.versions[i] = int64(answers[2*i+1].Stat.Version)
	}
	return nil
}

func (s *floorZooKeeper) close() error {
	s.conn.Close()
	return nil
}

// floorCases are the commits of storms alone.
func floorCases() (cases []benchCase) {
	for _, store := range []string{"etcd", "zookeeper"} {
		for _, n := range []int{2000, 5000, 10000} {
			cases = append(cases, benchCase{
				name:  fmt.Sprintf("floor-%s-%d", store, n),
				about: fmt.Sprintf("the commits of storm-%s-%d alone: %d jobs in each transaction, %d transactions in flight, 2 processes", store, n, floorJobs, floorFlights),
				run:   storm{"floor", store, 2, jobSet{Count: n, Every: time.Second, Shards: 1}}.run,
			})
		}
	}
	return cases
}
