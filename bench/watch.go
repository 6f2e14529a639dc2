package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rota-dev/rota/registry"
)

// fanOut is the number of clients that follow the same key.
const fanOut = 50

// watchOurs writes a key by one handle whenever n others have received the previous value.
// It measures from before the write to the last receipt.
func watchOurs(n int) func(ctx context.Context, s *store, m *meter) error {
	return func(ctx context.Context, s *store, m *meter) error {
		writer, err := s.open(ctx)
		if err != nil {
			return err
		}
		defer closeRegistry(writer)
		rev, err := writer.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("watched/key", nil)}})
		if err != nil {
			return err
		}
		var watchers []registry.Watcher
		for range n {
			reader, err := s.open(ctx)
			if err != nil {
				return err
			}
			defer closeRegistry(reader)
			w, err := reader.Watch(ctx, "watched", registry.WatchOptions{})
			if err != nil {
				return err
			}
			defer w.Close()
			if _, err := w.Next(ctx); err != nil {
				return err
			}
			watchers = append(watchers, w)
		}
		return measureEvents(m, func() (began time.Time, err error) {
			began = time.Now()
			rev, err = writer.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Set("watched/key", rev, []byte("value"))}})
			return began, err
		}, func() error {
			return runConcurrently(ctx, watchers, func(ctx context.Context, w registry.Watcher) error {
				_, err := w.Next(ctx)
				return err
			})
		})
	}
}

// measureEvents repeatedly writes and waits for the event.
func measureEvents(m *meter, write func() (began time.Time, err error), receive func() error) error {
	m.startClock()
	for !m.isOver() {
		came := make(chan error, 1)
		var at time.Time
		go func() {
			err := receive()
			at = time.Now()
			came <- err
		}()
		began, err := write()
		if err := errors.Join(err, <-came); err != nil {
			return err
		}
		m.add(at.Sub(began))
	}
	return nil
}

func watchEtcd(ctx context.Context, s *store, m *meter) error {
	writer, err := s.rawEtcd()
	if err != nil {
		return err
	}
	defer writer.Close()
	reader, err := s.rawEtcd()
	if err != nil {
		return err
	}
	defer reader.Close()
	key := rawRoot + "/watched"
	put, err := writer.Put(ctx, key, "")
	if err != nil {
		return err
	}
	coming := reader.Watch(ctx, key, clientv3.WithRev(put.Header.Revision+1), clientv3.WithCreatedNotify())
	if r := <-coming; r.Err() != nil {
		return r.Err()
	}
	return measureEvents(m, func() (time.Time, error) {
		began := time.Now()
		_, err := writer.Put(ctx, key, "value")
		return began, err
	}, func() error {
		r := <-coming
		return r.Err()
	})
}

// watchZooKeeper reads the changed value and sets the next watch in the same call, since
// an event carries no value.
func watchZooKeeper(_ context.Context, s *store, m *meter) error {
	writer, err := s.rawZooKeeper()
	if err != nil {
		return err
	}
	defer writer.Close()
	reader, err := s.rawZooKeeper()
	if err != nil {
		return err
	}
	defer reader.Close()
	key := rawRoot
	if _, err := writer.Create(key, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		return err
	}
	_, _, coming, err := reader.GetW(key)
	if err != nil {
		return err
	}
	return measureEvents(m, func() (time.Time, error) {
		began := time.Now()
		_, err := writer.Set(key, []byte("value"), -1)
		return began, err
	}, func() error {
		err := (<-coming).Err
		if err == nil {
			_, _, coming, err = reader.GetW(key)
		}
		return err
	})
}
