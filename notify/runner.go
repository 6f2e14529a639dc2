package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/lock"
	"github.com/rota-dev/rota/registry"
)

const (
	// After a failed attempt the pause begins at firstPause, and doubles up to longestPause.
	firstPause, longestPause = time.Second, time.Minute
	// longestRetryAfter bounds the delay that a receiver may ask for.
	longestRetryAfter = 15 * time.Minute
	// A message that the receiver refuses is tried again after firstRefusal, then after twice as long, up to longestRefusal. It is
	// dropped after refusedFor, or if there are more than mostRefused.
	firstRefusal, longestRefusal = time.Minute, time.Hour
	refusedFor                   = 24 * time.Hour
	mostRefused                  = 20
	// downAfter is how long a receiver fails until its record shows it.
	downAfter = time.Minute
	// commitTimeout bounds a commit after the end of a runner's context, finishTimeout the attempt that is under way then.
	commitTimeout, finishTimeout = 2 * time.Second, 3 * time.Second
	// mostDelivered bounds the IDs of messages that a process has delivered and remembers.
	mostDelivered = 256
)

// runner sends the messages of one receiver while its process is the sender.
type runner struct {
	g        *generation
	name     string
	to       Receiver
	log      *slog.Logger
	composer composer
	limit    limiter // of the lines about failed attempts
	storeLog limiter // of the lines about the store

	// The goroutine of run has these.
	held      *lock.Held // a lock that could not be released; nil: there is none
	busy      chan error // the result of a call of Deliver that has not returned; nil: there is none
	delivered []string   // the IDs of the last messages that were accepted, so that a conflict of a commit repeats none

	mu    mutex.Mutex
	stats ReceiverStats
}

func newRunner(g *generation, name string, to Receiver) *runner {
	n := g.n
	return &runner{
		g: g, name: name, to: to, log: g.log.With("receiver", name),
		composer: composer{n.namespace, n.group, g.o.Console, g.o.HideErrors},
	}
}

func (r *runner) readStats() ReceiverStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

func (r *runner) changeStats(change func(s *ReceiverStats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.stats)
}

// run waits to be the sender, and sends, until ctx ends.
func (r *runner) run(ctx context.Context, s registry.Session) {
	// A lock for each session: one that has seen commits of a store which was wiped since would wait for their like.
	l := lock.New(r.g.n.reg, r.g.n.keys.Sender(r.name))
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
		_ = l.Close(ctx) // a place that is left ends with the session
	}()
	r.held = nil
	for ctx.Err() == nil {
		err := r.releaseAgain(ctx)
		var held *lock.Held
		if err == nil {
			held, err = l.Acquire(ctx, s)
		}
		if err == nil {
			err = r.sendHolding(ctx, s, held)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && r.storeLog.allow(time.Now()) {
			r.log.Warn("cannot send messages to a receiver yet; trying again", "error", err)
		}
		pause(ctx, retryPause)
	}
}

// releaseAgain releases a lock that could not be released: its session would not acquire it again.
func (r *runner) releaseAgain(ctx context.Context) error {
	if r.held == nil {
		return nil
	}
	if err := r.held.Release(ctx); err != nil && !errors.Is(err, registry.ErrSessionLost) {
		return err
	}
	r.held = nil
	return nil
}

// sendHolding sends while the lock is held, and releases it.
func (r *runner) sendHolding(ctx context.Context, s registry.Session, held *lock.Held) error {
	r.changeStats(func(st *ReceiverStats) { st.Sender = true })
	defer func() {
		r.changeStats(func(st *ReceiverStats) { st.Sender = false })
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
		if err := held.Release(ctx); err != nil && !errors.Is(err, registry.ErrSessionLost) {
			r.held = held
		}
	}()
	defer r.g.group.acquire()()
	t := &term{
		runner: r, session: s, held: held, decider: newDecider(rules{r.g.o.After, r.g.o.Quiet}),
		refused: map[string]refusal{},
	}
	for {
		err := t.send(ctx)
		if !errors.Is(err, errCursorChanged) {
			return err
		}
		r.log.Warn("another writer changed the record of a receiver; reading it again")
		pause(ctx, retryPause)
	}
}

// errCursorChanged is the error of a commit if another writer has changed the record of the receiver.
var errCursorChanged = errors.New("another writer changed the record of the receiver")

// term is a time in which a runner is the sender.
type term struct {
	*runner
	session registry.Session
	held    *lock.Held
	decider *decider

	cursor record.Receiver
	rev    registry.Rev
	flight []Message // of the cursor

	single     int // changes that were messages of their own since singleFrom; more than maxSingle after a summary
	singleFrom time.Time
	decided    time.Time          // when the watcher's round was that was decided last
	failures   int                // attempts that have failed in a row
	notBefore  time.Time          // of the next attempt
	downSince  time.Time          // of the first of failures
	warned     bool               // a line about failures has been logged, and none about their end
	refused    map[string]refusal // by ID
}

// refusal is a message that the receiver refuses.
type refusal struct {
	times     int
	notBefore time.Time
}

// send reads the record of the receiver, and sends until ctx ends or the record cannot be written.
func (t *term) send(ctx context.Context) error {
	if err := t.readCursor(ctx); err != nil {
		return err
	}
	t.log.Info("sending messages to a receiver", "in_flight", len(t.flight))
	ticks := time.NewTicker(roundEvery)
	defer ticks.Stop()
	for {
		if err := t.decide(ctx); err != nil {
			return err
		}
		if err := t.deliver(ctx); err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// readCursor reads the record of the receiver, or creates it.
func (t *term) readCursor(ctx context.Context) error {
	key := t.g.n.keys.Receiver(t.name)
	e, err := t.g.n.reg.Get(ctx, key, registry.ReadOptions{Fresh: true})
	if errors.Is(err, registry.ErrNotFound) {
		t.cursor, t.flight, t.rev = record.Receiver{Name: t.name}, nil, registry.Rev{}
		return t.commit(ctx, t.cursor, nil)
	}
	if err != nil {
		return err
	}
	t.rev = e.Modified
	cursor, err := record.DecodeReceiver(e.Value)
	if err != nil || cursor.Name != t.name {
		t.log.Warn("the record of a receiver cannot be read; beginning anew", "key", key, "error", err)
		return t.commit(ctx, record.Receiver{Name: t.name}, nil)
	}
	t.cursor, t.flight = *cursor, nil
	for _, raw := range cursor.Flight {
		var m Message
		if err := json.Unmarshal(raw, &m); err != nil || m.ID == "" {
			t.log.Warn("the record of a receiver has a message that cannot be read; leaving it out", "key", key, "error", err)
			continue
		}
		t.flight = append(t.flight, m)
	}
	t.downSince = cursor.DownSince.Time()
	t.publish()
	return nil
}

// commit replaces the record of the receiver, on condition that the lock is held.
func (t *term) commit(ctx context.Context, next record.Receiver, flight []Message) error {
	next.Flight = nil
	for i := range flight {
		raw, err := json.Marshal(&flight[i])
		if err != nil {
			return err
		}
		next.Flight = append(next.Flight, raw)
	}
	value, err := record.Encode(&next)
	if err != nil {
		return err
	}
	key := t.g.n.keys.Receiver(t.name)
	op := registry.Set(key, t.rev, value)
	if t.rev.IsZero() {
		op = registry.Create(key, value)
	}
	if ctx.Err() != nil { // the session may live for a while
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
	}
	rev, err := registry.Apply(ctx, t.g.n.reg, registry.Txn{If: []registry.Cond{t.held.Guard()}, Then: []registry.Op{op}})
	var conflict *registry.ConflictError
	if errors.As(err, &conflict) && conflict.Index == 1 {
		return fmt.Errorf("%w: %w", errCursorChanged, err)
	}
	if err != nil {
		return err
	}
	t.rev, t.cursor, t.flight = rev, next, flight
	t.publish()
	return nil
}

// publish updates the stats.
func (t *term) publish() {
	t.changeStats(func(s *ReceiverStats) {
		s.InFlight, s.DownSince = len(t.flight), t.downSince
	})
}

// decide adds the messages that are due to the flight, and commits them. While others wait to be accepted, it only observes:
// the next messages report the changes since.
func (t *term) decide(ctx context.Context) error {
	if state, _ := t.session.State(); state != registry.SessionConnected {
		return nil // the watches may lag
	}
	// A state has lasted for as long as it was observed, so what counts is when the observations were.
	seen, now, ok := t.g.group.read(t.decider.tracked(&t.cursor), func(job string) bool { return t.g.o.wants(t.name, job) })
	if !ok || now.Equal(t.decided) {
		return nil
	}
	t.decided = now
	if now.Sub(t.singleFrom) >= singleWithin {
		t.single, t.singleFrom = 0, now
	}
	hold := t.single >= maxSingle || slices.ContainsFunc(t.flight, func(m Message) bool { return !t.isRefused(m.ID) })
	next, changes, rest := t.decider.decide(&t.cursor, seen, now, hold)
	if len(changes) == 0 && (rest == 0 || t.cursor.Rest > 0) {
		next.Flight = t.cursor.Flight
		t.cursor = next // without entries whose quiet time is over
		return nil
	}
	messages := t.composer.compose(changes, rest, maxSingle-t.single, now)
	if t.single == 0 {
		t.singleFrom = now
	}
	if t.single += len(messages); messages[0].Transition == Summary {
		t.single = maxSingle
	}
	return t.commit(ctx, next, append(slices.Clone(t.flight), messages...))
}

func (t *term) isRefused(id string) bool { return t.refused[id].times > 0 }

// deliver makes an attempt to deliver each message in flight whose time has come, and commits the rest.
func (t *term) deliver(ctx context.Context) error {
	if len(t.flight) == 0 || time.Now().Before(t.notBefore) || ctx.Err() != nil {
		return nil
	}
	left := make([]Message, 0, len(t.flight))
	for i := range t.flight {
		m := &t.flight[i]
		now := time.Now()
		wait := ctx.Err() != nil || now.Before(t.notBefore) || now.Before(t.refused[m.ID].notBefore)
		if wait || !t.attempt(ctx, m) {
			left = append(left, *m)
		}
	}
	left = t.dropRefused(left, time.Now())
	next := t.cursor
	next.DownSince, next.Error = 0, ""
	if down := t.downSince; !down.IsZero() && time.Since(down) >= downAfter {
		next.DownSince, next.Error = record.InstantOf(down), t.readStats().Error
		if t.cursor.DownSince == next.DownSince {
			next.Error = t.cursor.Error // one commit for each outage
		}
	}
	if len(left) == len(t.flight) && next.DownSince == t.cursor.DownSince && next.Error == t.cursor.Error {
		t.publish()
		return nil
	}
	return t.commit(ctx, next, left)
}

// attempt makes an attempt to deliver a message, and reports whether it is done.
func (t *term) attempt(ctx context.Context, m *Message) (done bool) {
	if slices.Contains(t.delivered, m.ID) {
		return true
	}
	err := t.call(ctx, *m)
	now := time.Now()
	var incomplete *incompleteError
	if errors.As(err, &incomplete) {
		t.log.Warn("message not accepted for each address", "id", m.ID, "error", err)
		err = nil
	}
	if err == nil {
		t.noteSuccess(m)
		return true
	}
	t.changeStats(func(s *ReceiverStats) { s.Failures, s.Error = s.Failures+1, cutError(err) })
	if t.downSince.IsZero() {
		t.downSince = now
	}
	if t.limit.allow(now) {
		t.warned = true
		t.log.Warn("a receiver does not accept messages; trying again", "id", m.ID, "down_since", t.downSince, "in_flight", len(t.flight), "error", cutError(err))
	}
	var permanent *executor.PermanentError
	if errors.As(err, &permanent) {
		r := t.refused[m.ID]
		r.notBefore = now.Add(min(firstRefusal<<min(r.times, 10), longestRefusal))
		r.times++
		t.refused[m.ID] = r
		return false
	}
	t.failures++
	delay := min(firstPause<<min(t.failures-1, 10), longestPause)
	var later *executor.RetryAfterError
	if errors.As(err, &later) {
		delay = max(delay, min(later.After, longestRetryAfter))
	}
	t.notBefore = now.Add(delay)
	return false
}

// noteSuccess notes that a message was accepted.
func (t *term) noteSuccess(m *Message) {
	if t.warned {
		t.warned = false
		t.log.Info("a receiver accepts messages again", "down_since", t.downSince)
	}
	t.failures, t.downSince, t.notBefore = 0, time.Time{}, time.Time{}
	delete(t.refused, m.ID)
	t.delivered = append(t.delivered, m.ID)
	t.delivered = t.delivered[max(0, len(t.delivered)-mostDelivered):]
	t.changeStats(func(s *ReceiverStats) { s.Delivered, s.Error = s.Delivered+1, "" })
}

// dropRefused returns the messages without those that have been refused for too long, and those for which there is no room.
func (t *term) dropRefused(flight []Message, now time.Time) (left []Message) {
	count := 0
	for i := range flight {
		if t.isRefused(flight[i].ID) {
			count++
		}
	}
	for i := range flight {
		m := &flight[i]
		if t.isRefused(m.ID) && (count > mostRefused || now.Sub(m.At) > refusedFor) {
			count--
			delete(t.refused, m.ID)
			t.log.Error("message dropped: the receiver refuses it", "id", m.ID, "text", cutText(m.Subject()), "error", t.readStats().Error)
			t.changeStats(func(s *ReceiverStats) { s.Dropped++ })
			continue
		}
		left = append(left, *m)
	}
	return left
}

// errBusy is the error of an attempt while an earlier call of Deliver has not returned.
var errBusy = errors.New("an earlier call of Deliver has not returned")

// call calls Deliver, and waits for it as long as it may take.
func (r *runner) call(ctx context.Context, m Message) error {
	if r.busy != nil {
		select {
		case <-r.busy:
			r.busy = nil
		default:
			return errBusy
		}
	}
	calling, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), r.g.o.Timeout, fmt.Errorf("no answer within %v", r.g.o.Timeout))
	defer cancel()
	result := make(chan error, 1)
	go func() {
		result <- contain.CallApart("Deliver", func() error { return r.to.Deliver(calling, m) })
	}()
	select {
	case err := <-result:
		return err
	case <-calling.Done():
	case <-ctx.Done():
		select {
		case err := <-result:
			return err
		case <-calling.Done():
		case <-time.After(finishTimeout):
			cancel()
		}
	}
	select {
	case err := <-result:
		if err == nil {
			return nil
		}
		return fmt.Errorf("%w: %w", context.Cause(calling), err)
	case <-time.After(time.Second):
		r.busy = result
		return fmt.Errorf("%w, and Deliver does not return: %w", context.Cause(calling), errBusy)
	}
}

// cutError returns the text of an error for records and logs.
func cutError(err error) string { return cutText(err.Error()) }
