package tcpproxy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// directionState holds the active faults of one direction.
type directionState struct {
	holds int
	delay time.Duration
	rates []int // bytes per second
}

// Cut resets all connections at both ends. Bytes in transit are lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.links {
		k.resetBoth()
	}
}

// Refuse resets all connections and makes the kernel refuse new ones.
func (p *Proxy) Refuse() (heal func()) {
	p.mu.Lock()
	p.refusals++
	p.closeListener()
	p.mu.Unlock()
	p.Cut()
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.refusals--; p.refusals == 0 && !p.closed {
			p.listenAgain()
		}
	})
}

// listenAgain panics if another process has taken the port, which is unlikely. Testing
// against a foreign server would be worse.
func (p *Proxy) listenAgain() {
	if err := p.startListening(); err != nil {
		panic(fmt.Sprintf("tcpproxy: listen again: %v", err))
	}
}

// Blackhole silently holds all bytes in both directions and accepts connections without
// connecting them to the server. heal forwards the held bytes, as TCP would retransmit
// them, unless their sender has closed the connection or Cut was called; then they are
// lost.
func (p *Proxy) Blackhole() (heal func()) {
	there, back := p.OneWay(ToServer), p.OneWay(ToClient)
	return func() {
		there()
		back()
	}
}

// OneWay is Blackhole for direction d only.
func (p *Proxy) OneWay(d Direction) (heal func()) {
	return p.changeDirection(d, func(w *directionState) { w.holds++ }, func(w *directionState) { w.holds-- })
}

// Delay delays bytes in direction d. It preserves order and throughput. Several delays
// add up.
func (p *Proxy) Delay(d Direction, by time.Duration) (restore func()) {
	return p.changeDirection(d, func(w *directionState) { w.delay += by }, func(w *directionState) { w.delay -= by })
}

// Throttle limits each connection to so many bytes per second in direction d, at least
// 10. The lowest of several limits applies.
func (p *Proxy) Throttle(d Direction, bytesPerSecond int) (restore func()) {
	bytesPerSecond = max(bytesPerSecond, portions)
	return p.changeDirection(d,
		func(w *directionState) { w.rates = append(w.rates, bytesPerSecond) },
		func(w *directionState) {
			i := slices.Index(w.rates, bytesPerSecond)
			w.rates = slices.Delete(w.rates, i, i+1)
		})
}

// changeDirection changes the faults of a direction and wakes all waiters.
func (p *Proxy) changeDirection(d Direction, do, undo func(*directionState)) (restore func()) {
	apply := func(f func(*directionState)) {
		p.mu.Lock()
		defer p.mu.Unlock()
		f(&p.ways[d])
		close(p.changed)
		p.changed = make(chan struct{})
	}
	apply(do)
	return sync.OnceFunc(func() { apply(undo) })
}

// awaitPassage waits until bytes read at the given time may pass in direction d. It
// reports false if ctx ended first.
func (p *Proxy) awaitPassage(ctx context.Context, d Direction, at time.Time) bool {
	for {
		p.mu.Lock()
		w, changed := p.ways[d], p.changed
		p.mu.Unlock()
		late := time.Until(at.Add(w.delay))
		var due <-chan time.Time
		switch {
		case ctx.Err() != nil:
			return false
		case w.holds > 0:
		case w.delay <= 0 || late <= 0:
			return true
		default:
			due = time.After(late)
		}
		select {
		case <-changed:
		case <-due:
		case <-ctx.Done():
			return false
		}
	}
}

func (p *Proxy) isHeld(d Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ways[d].holds > 0
}

// portions is the number of writes per second under Throttle.
const portions = 10

// nextPortion returns how many of n bytes to write at once, and the pause before the
// write.
func (p *Proxy) nextPortion(d Direction, n int) (now int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rates := p.ways[d].rates
	if len(rates) == 0 {
		return n, 0
	}
	rate := slices.Min(rates)
	now = min(n, rate/portions)
	return now, time.Duration(now) * time.Second / time.Duration(rate)
}
