package tcpproxy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// directionState is what is wrong with one direction.
type directionState struct {
	holds int
	delay time.Duration
	rates []int // bytes per second
}

// Cut resets all connections, at both ends. What was on its way is lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.links {
		k.resetBoth()
	}
}

// Refuse resets all connections and has the kernel refuse new ones.
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

// listenAgain panics if another process has taken the port, which is against the odds:
// tests on a stranger's server would be worse.
func (p *Proxy) listenAgain() {
	if err := p.startListening(); err != nil {
		panic(fmt.Sprintf("tcpproxy: listen again: %v", err))
	}
}

// Blackhole holds everything in both directions. Nobody is told, and connections are
// accepted that lead nowhere. What is held goes on its way with heal, as TCP would send
// it again, unless its sender has closed the connection meanwhile, or it was Cut: then
// it is lost.
func (p *Proxy) Blackhole() (heal func()) {
	there, back := p.OneWay(ToServer), p.OneWay(ToClient)
	return func() {
		there()
		back()
	}
}

// OneWay is Blackhole for what goes in direction d. What comes back passes.
func (p *Proxy) OneWay(d Direction) (heal func()) {
	return p.changeDirection(d, func(w *directionState) { w.holds++ }, func(w *directionState) { w.holds-- })
}

// Delay makes what goes in direction d late by that much, in order and without making it
// less. Several delays add up.
func (p *Proxy) Delay(d Direction, by time.Duration) (restore func()) {
	return p.changeDirection(d, func(w *directionState) { w.delay += by }, func(w *directionState) { w.delay -= by })
}

// Throttle lets each connection pass so many bytes per second in direction d, which are
// at least 10. The lowest of several counts.
func (p *Proxy) Throttle(d Direction, bytesPerSecond int) (restore func()) {
	bytesPerSecond = max(bytesPerSecond, portions)
	return p.changeDirection(d,
		func(w *directionState) { w.rates = append(w.rates, bytesPerSecond) },
		func(w *directionState) {
			i := slices.Index(w.rates, bytesPerSecond)
			w.rates = slices.Delete(w.rates, i, i+1)
		})
}

// changeDirection changes a direction and wakes those who wait for that.
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

// awaitPassage waits until what was read at that time may go in direction d, and reports false
// if ctx ended first.
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

// portions is how many writes a throttled second has.
const portions = 10

// nextPortion says how many of n bytes to write at once, and how long to wait before.
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
