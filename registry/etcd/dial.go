package etcd

import (
	"context"
	"errors"
	"time"

	"github.com/rota-dev/rota/internal/remote"
)

// headStart is how long a member is tried until the next one is tried as well: one that is
// paused, or has lost its peers, takes its time to say nothing.
const headStart = 250 * time.Millisecond

// dialFirst returns a link to the first member that answers, of all of them, beginning with
// that one. It has the errors of all if there is none, and stops at one by which the
// credentials are refused: the others would say the same.
func (c *Client) dialFirst(ctx context.Context, member int) (*link, error) {
	ctx, cancel := context.WithCancel(ctx)
	n := len(c.options.Endpoints)
	dials := make(chan dialed, n)
	begun, ended := 0, 0
	next := func() {
		if begun < n {
			member := (member + begun) % n
			begun++
			go func() {
				l, err := c.dial(ctx, member)
				dials <- dialed{l, err}
			}()
		}
	}
	defer func() {
		cancel()
		for ; ended < begun; ended++ {
			if d := <-dials; d.link != nil { // too late
				d.link.close()
			}
		}
	}()

	var errs []error
	next()
	for ended < begun {
		select {
		case <-time.After(headStart):
			next()
		case d := <-dials:
			ended++
			if d.err == nil {
				return d.link, nil
			}
			if remote.Said(d.err) {
				return nil, d.err
			}
			errs = append(errs, d.err)
			next()
		}
	}
	return nil, errors.Join(errs...)
}

type dialed struct {
	link *link
	err  error
}
