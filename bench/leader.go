package main

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/registry"
)

const (
	// candidates is the number of candidates: one leads, one is next, and one returns.
	candidates = 3
	// term is the duration of each term, long enough for a successor to wait.
	term = 20 * time.Millisecond
)

// campaigner uses coordinator.Campaign, which opens a session for each term.
type campaigner struct{ reg registry.Registry }

func newCampaigner(ctx context.Context, s *store) (contender, error) {
	reg, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	return &campaigner{reg}, nil
}

func (c *campaigner) tenure(ctx context.Context, held func()) error {
	return coordinator.Campaign(ctx, c.reg, "leader", func(context.Context, uint64) error {
		held()
		return nil
	})
}

func (c *campaigner) close() { closeRegistry(c.reg) }

// etcdElection uses the election of etcd's client, with one session for all terms.
type etcdElection struct {
	client   *clientv3.Client
	session  *concurrency.Session
	election *concurrency.Election
}

func newEtcdElection(_ context.Context, s *store) (contender, error) {
	client, session, err := s.etcdSession()
	if err != nil {
		return nil, err
	}
	return &etcdElection{client, session, concurrency.NewElection(session, rawRoot+"/leader")}, nil
}

func (e *etcdElection) tenure(ctx context.Context, held func()) error {
	if err := e.election.Campaign(ctx, "candidate"); err != nil {
		return err
	}
	held()
	return e.election.Resign(ctx)
}

func (e *etcdElection) close() {
	_ = e.session.Close()
	_ = e.client.Close()
}
