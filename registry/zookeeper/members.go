package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// members are the servers that a handle may connect to.
type members struct {
	endpoints []string // host:port
	inOrder   bool     // try endpoints in the given order
	lookup    func(ctx context.Context, host string) ([]string, error)

	mu        sync.Mutex
	preferred string            // address that all connections of the handle should share
	names     map[string]string // address to host name, for TLS
}

const (
	// lookupTimeout bounds the DNS lookup of one host.
	lookupTimeout = 2 * time.Second

	// The pause between rounds over all members grows up to the session's timeout divided by
	// pausesPerTimeout, and at most maxPause. The library would always pause for a second,
	// which costs short sessions their TTL.
	minPause         = 20 * time.Millisecond
	maxPause         = time.Second
	pausesPerTimeout = 20
)

func newMembers(o *Options) *members {
	return &members{endpoints: o.Endpoints, inOrder: o.InOrder, lookup: o.LookupHost, names: make(map[string]string)}
}

// prefer makes address the first to try.
func (m *members) prefer(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.preferred = address
}

// hostName returns the host name that address was looked up for.
func (m *members) hostName(address string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names[address]
}

// resolve returns the present addresses of all members in the order in which to try them, the
// preferred one first. It looks names up each time because members may move.
func (m *members) resolve(ctx context.Context) ([]string, error) {
	var all []string
	var errs []error
	for _, server := range m.endpoints {
		host, port, err := net.SplitHostPort(server)
		if err != nil { // Options.complete has checked this
			return nil, err
		}
		found, err := m.addresses(ctx, host)
		if err != nil {
			errs = append(errs, err)
		}
		for _, ip := range found {
			all = append(all, net.JoinHostPort(ip, port))
			m.setHostName(net.JoinHostPort(ip, port), host)
		}
	}
	if !m.inOrder {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(all, m.preferred); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, m.preferred)
	}
	return all, errors.Join(errs...)
}

func (m *members) addresses(ctx context.Context, host string) ([]string, error) {
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := m.lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	return found, nil
}

func (m *members) setHostName(address, host string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names[address] = host
}

// route yields the members that a link tries, in rounds. It implements the client library's
// HostProvider; only the library's connecting goroutine uses it.
type route struct {
	members     *members
	ctx         context.Context // ends when no connection is wanted any more
	roundFailed func(err error) // called with the errors of a failed round
	idle        func()          // called when the library asks for a member and none is wanted
	closing     <-chan struct{} // closed when the library's Close has been called
	todo        []string
	roundBegun  bool // a round is in progress or has failed
	pause       time.Duration
	maxPause    time.Duration // upper bound of pause
	errs        []error       // of this round
}

// libraryQueueTime is the delay that lets the library queue its last request before the link
// ends, so that it is answered there. A request that is queued later would keep the library
// waiting for a second.
const libraryQueueTime = 10 * time.Millisecond

func (r *route) Init([]string) error { return nil }

func (r *route) Len() int { return len(r.members.endpoints) }

// Next returns the next member to try and pauses between rounds. If no connection is wanted any
// more, it waits until the library is closed and returns true, upon which the library answers
// all queued requests with an error.
func (r *route) Next() (string, bool) {
	for r.ctx.Err() == nil && len(r.todo) == 0 {
		if r.roundBegun {
			r.roundFailed(errors.Join(r.errs...))
			r.pauseBetweenRounds()
		}
		r.errs = nil
		r.roundBegun = true
		var err error
		if r.todo, err = r.members.resolve(r.ctx); err != nil {
			r.addError(err)
		}
	}
	if r.ctx.Err() != nil {
		r.idle()
		<-r.closing
		time.Sleep(libraryQueueTime)
		return "", true
	}
	next := r.todo[0]
	r.todo = r.todo[1:]
	return next, false
}

// pauseBetweenRounds pauses, twice as long each time.
func (r *route) pauseBetweenRounds() {
	r.pause = max(min(2*r.pause, r.maxPause), minPause)
	jitter := rand.N(r.pause/2 + 1)
	select {
	case <-time.After(r.pause/2 + jitter):
	case <-r.ctx.Done():
	}
}

func (r *route) addError(err error) { r.errs = append(r.errs, err) }

// Connected is called when a server has answered the greeting.
func (r *route) Connected() {
	r.todo, r.errs, r.pause, r.roundBegun = nil, nil, 0, false
}
