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

// hosts are the members that a handle may connect to.
type hosts struct {
	servers []string // host:port
	inOrder bool     // they are tried as they are given
	lookup  func(ctx context.Context, host string) ([]string, error)

	mu        sync.Mutex
	preferred string            // the address that the handle's connections should share
	names     map[string]string // the host of an address, for TLS
}

const (
	// lookupTimeout bounds the question for the addresses of one host.
	lookupTimeout = 2 * time.Second

	// Between rounds over all members there is a pause, which grows up to a twentieth of
	// the session's timeout, or a second. The library's own is always a second, which costs
	// short sessions.
	firstPause = 20 * time.Millisecond
	mostPause  = time.Second
	pausesIn   = 20
)

func newHosts(o *Options) *hosts {
	return &hosts{servers: o.Endpoints, inOrder: o.InOrder, lookup: o.LookupHost, names: make(map[string]string)}
}

// prefer makes address the first that is tried.
func (h *hosts) prefer(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.preferred = address
}

// host returns the name by which an address was found.
func (h *hosts) host(address string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.names[address]
}

// resolve returns the addresses of all members as of now, in the order in which they are
// to be tried: the preferred one, then the others. Names are looked up each time, as
// members may move.
func (h *hosts) resolve(ctx context.Context) ([]string, error) {
	var all []string
	var errs []error
	for _, server := range h.servers {
		host, port, err := net.SplitHostPort(server)
		if err != nil { // options were checked
			return nil, err
		}
		found, err := h.addresses(ctx, host)
		if err != nil {
			errs = append(errs, err)
		}
		for _, ip := range found {
			all = append(all, net.JoinHostPort(ip, port))
			h.name(net.JoinHostPort(ip, port), host)
		}
	}
	if !h.inOrder {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(all, h.preferred); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, h.preferred)
	}
	return all, errors.Join(errs...)
}

func (h *hosts) addresses(ctx context.Context, host string) ([]string, error) {
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := h.lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	return found, nil
}

func (h *hosts) name(address, host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names[address] = host
}

// route is what a link tries, one member after another, in rounds. It is what the client
// library calls a host provider; only the library's connecting goroutine uses it.
type route struct {
	hosts *hosts
	ctx   context.Context // ends when no connection is wanted any more
	over  func(err error) // told what went wrong in a round without success
	idle  func()          // called when the library asks for a member and none is wanted
	quit  <-chan struct{} // closed when the library is told to end
	todo  []string
	round bool // has begun
	pause time.Duration
	most  time.Duration // of pause
	errs  []error       // of the round
}

// endPause is how long the end of a link is put off so that the library's last request
// is in its queue, where it is answered. If it comes later the library waits for a second.
const endPause = 10 * time.Millisecond

func (r *route) Init([]string) error { return nil }

func (r *route) Len() int { return len(r.hosts.servers) }

// Next returns the next member to try, and waits between rounds. If none is wanted any more
// it waits until the library is told to end, and returns true: then the library answers
// what it has queued with an error.
func (r *route) Next() (string, bool) {
	for r.ctx.Err() == nil && len(r.todo) == 0 {
		if r.round {
			r.over(errors.Join(r.errs...))
			r.rest()
		}
		r.errs = nil
		r.round = true
		var err error
		if r.todo, err = r.hosts.resolve(r.ctx); err != nil {
			r.failed(err)
		}
	}
	if r.ctx.Err() != nil {
		r.idle()
		<-r.quit
		time.Sleep(endPause)
		return "", true
	}
	next := r.todo[0]
	r.todo = r.todo[1:]
	return next, false
}

// rest waits between rounds, for longer each time.
func (r *route) rest() {
	r.pause = max(min(2*r.pause, r.most), firstPause)
	jitter := rand.N(r.pause/2 + 1)
	select {
	case <-time.After(r.pause/2 + jitter):
	case <-r.ctx.Done():
	}
}

func (r *route) failed(err error) { r.errs = append(r.errs, err) }

// Connected is called when a server has greeted.
func (r *route) Connected() {
	r.todo, r.errs, r.pause, r.round = nil, nil, 0, false
}
