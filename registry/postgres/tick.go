package postgres

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rota-dev/rota/registry/backend"
)

// tickEvery is the interval at which a handle advances the lease clock, unless another one has. It is shorter than the 750 ms that a tick may
// add, so that a tick may be late.
const tickEvery = 500 * time.Millisecond

// leaseView is the knowledge of a handle about the lease clock of the store.
type leaseView struct {
	shown int64     // the time that it showed
	at    time.Time // when that was learned; the clock showed it before
}

// elapsed returns how long the clock has shown this, at least, by the monotonic clock of this process.
func (v leaseView) elapsed(now time.Time) time.Duration {
	if v.at.IsZero() {
		return 0
	}
	return now.Sub(v.at)
}

// observe returns the view after an answer that came now.
func (v leaseView) observe(shown int64, now time.Time) leaseView {
	if shown == v.shown && !v.at.IsZero() {
		return v
	}
	return leaseView{shown, now}
}

// keepTime advances the lease clock and does the work that is due, until the handle is closed.
func (c *Client) keepTime() {
	view := leaseView{}
	failing := false
	for backend.Sleep(c.handle.Context(), backend.Jittered(tickEvery)) {
		next, err := c.tick(view)
		view = next
		switch lasts := err != nil && !worthRetrying(err); {
		case lasts && !failing:
			failing = true
			c.log.LogAttrs(c.ctx, slog.LevelWarn, "cannot advance the lease clock of the registry", errorAttr(err),
				slog.String("next", "sessions expire only if other handles advance it"))
		case err == nil:
			failing = false
		}
	}
}

// tick advances the lease clock once. If it did, it also ends sessions and shortens the log.
func (c *Client) tick(v leaseView) (leaseView, error) {
	ctx, cancel := context.WithTimeout(c.handle.Context(), c.options.CallTimeout)
	defer cancel()
	l, err := c.writes.get(ctx)
	if err != nil {
		return v, translate(err)
	}
	// Not repeated: elapsed has to be measured again.
	rows, err := l.do(ctx, statement{
		"SELECT lease, work FROM " + c.options.Schema + ".tick($1, $2)",
		[]param{bigint(v.shown), bigint(v.elapsed(time.Now()).Microseconds())},
	})
	if err != nil {
		l.endIfStandby(err)
		return v, translate(err)
	}
	if len(rows) != 1 {
		return v, errors.New("an incomplete answer")
	}
	v = v.observe(rows[0].int8(0), time.Now())
	for work := rows[0].bool(1); work; {
		rows, err = c.call(ctx, c.writes, statement{"SELECT " + c.options.Schema + ".reap($1)", []param{boolean(!c.options.PollOnly)}})
		if err != nil {
			return v, err
		}
		work = len(rows) == 1 && rows[0].bool(0)
	}
	return v, nil
}
