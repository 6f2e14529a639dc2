package main

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/rota-dev/rota/lock"
	"github.com/rota-dev/rota/registry"
)

// cleanupTimeout bounds the cleanup after a run, whose context may have ended.
const cleanupTimeout = 10 * time.Second

func closeRegistry(reg registry.Registry) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	_ = reg.Close(ctx) // the server stops too
}

// ourLock uses lock.Lock, with a handle of its own.
type ourLock struct {
	reg     registry.Registry
	session registry.Session
	lock    *lock.Lock
}

func newOurLock(ctx context.Context, s *store) (contender, error) {
	reg, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	session, err := reg.OpenSession(ctx, registry.SessionOptions{})
	if err != nil {
		closeRegistry(reg)
		return nil, err
	}
	return &ourLock{reg, session, lock.New(reg, "lock")}, nil
}

func (l *ourLock) tenure(ctx context.Context, held func()) error {
	h, err := l.lock.Acquire(ctx, l.session)
	if err != nil {
		return err
	}
	held()
	return h.Release(ctx)
}

func (l *ourLock) close() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	_ = l.lock.Close(ctx)
	closeRegistry(l.reg)
}

// rawRoot is the prefix of the keys of other clients than ours.
const rawRoot = "/raw"

// rawEtcd returns a plain etcd client.
func (s *store) rawEtcd() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{s.addr}, Logger: zap.NewNop()})
}

// rawZooKeeper returns a plain connection of the ZooKeeper client library.
func (s *store) rawZooKeeper() (*zk.Conn, error) {
	conn, _, err := zk.Connect([]string{s.addr}, 10*time.Second, zk.WithLogger(discardLogger{}))
	return conn, err
}

type discardLogger struct{}

func (discardLogger) Printf(string, ...any) {}

// etcdMutex uses the lock of etcd's client.
type etcdMutex struct {
	client  *clientv3.Client
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func newEtcdMutex(_ context.Context, s *store) (contender, error) {
	client, session, err := s.etcdSession()
	if err != nil {
		return nil, err
	}
	return &etcdMutex{client, session, concurrency.NewMutex(session, rawRoot+"/lock")}, nil
}

func (s *store) etcdSession() (*clientv3.Client, *concurrency.Session, error) {
	client, err := s.rawEtcd()
	if err != nil {
		return nil, nil, err
	}
	session, err := concurrency.NewSession(client)
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return client, session, nil
}

func (m *etcdMutex) tenure(ctx context.Context, held func()) error {
	if err := m.mutex.Lock(ctx); err != nil {
		return err
	}
	held()
	return m.mutex.Unlock(ctx)
}

func (m *etcdMutex) close() {
	_ = m.session.Close()
	_ = m.client.Close()
}

// zkLock uses the lock of the ZooKeeper client library, which supports no context.
type zkLock struct {
	conn *zk.Conn
	lock *zk.Lock
}

func newZKLock(_ context.Context, s *store) (contender, error) {
	conn, err := s.rawZooKeeper()
	if err != nil {
		return nil, err
	}
	return &zkLock{conn, zk.NewLock(conn, rawRoot+"/lock", zk.WorldACL(zk.PermAll))}, nil
}

func (l *zkLock) tenure(_ context.Context, held func()) error {
	if err := l.lock.Lock(); err != nil {
		return err
	}
	held()
	return l.lock.Unlock()
}

func (l *zkLock) close() { l.conn.Close() }
