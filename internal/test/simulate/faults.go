package simulate

import (
	"fmt"
	"math"
	"time"

	"github.com/rota-dev/rota/registry/memory"
)

// Fault is a kind of fault.
type Fault string

// The kinds of faults.
const (
	Crash        Fault = "crash"            // the process ends without a drain; another starts later
	Leave        Fault = "leave"            // it drains and leaves; another starts
	Stop         Fault = "stopped"          // it does nothing for a while and then goes on, as after SIGSTOP
	Partition    Fault = "partition"        // it is cut off for less or more than the TTL
	LoseRequests Fault = "requests lost"    // one way, for a while
	LoseReplies  Fault = "replies lost"     // one way, for a while
	LostRequest  Fault = "lost request"     // of the next few transactions
	LostReply    Fault = "lost reply"       // to the next few transactions
	HeldCommit   Fault = "held commit"      // the next few transactions arrive much later
	Expire       Fault = "expired session"  // of a live process
	Starve       Fault = "starved session"  // the session is not renewed
	HoldWatch    Fault = "held watch"       // events arrive much later
	Lag          Fault = "stale reads"      // plain reads are answered from an old state
	Isolate      Fault = "isolated member"  // so are they, and nothing else is answered
	Delay        Fault = "delay"            // messages are slow
	PauseServer  Fault = "server paused"    // it sends no replies for a while
	Restart      Fault = "server restarted" // all connections break
	Outage       Fault = "outage"           // all processes crash at once; the others start minutes later
	WrongClock   Fault = "wrong clock"      // it differs from the others by more than MaxClockSkew
)

// odds is how often each kind is injected, relative to the others.
var odds = []struct {
	Fault
	weight int
}{
	{Crash, 20},
	{Leave, 8},
	{Stop, 8},
	{Partition, 16},
	{LoseRequests, 7},
	{LoseReplies, 7},
	{LostRequest, 8},
	{LostReply, 10},
	{HeldCommit, 8},
	{Expire, 7},
	{Starve, 6},
	{HoldWatch, 8},
	{Lag, 8},
	{Isolate, 6},
	{Delay, 6},
	{PauseServer, 6},
	{Restart, 6},
	{Outage, 3},
	{WrongClock, 8},
}

// injectFault injects a fault and schedules the next one.
func (f *fleet) injectFault() error {
	if !time.Now().Before(f.until) {
		return nil
	}
	kind := f.drawFault()
	s := f.drawVictim()
	last := f.drawDuration()
	n := 1 + f.rng.IntN(4)
	delay := time.Duration(1+f.rng.IntN(400)) * time.Millisecond
	f.schedule(f.drawPause(), f.injectFault)
	if s.process == nil {
		return nil
	}
	f.report.Faults[string(kind)]++
	f.inflict(kind, s, last, n, delay)
	return nil
}

func (f *fleet) drawFault() Fault {
	sum := 0
	for _, o := range odds {
		if f.mayInject(o.Fault) {
			sum += o.weight
		}
	}
	n := f.rng.IntN(sum)
	for _, o := range odds {
		if !f.mayInject(o.Fault) {
			continue
		}
		if n -= o.weight; n < 0 {
			return o.Fault
		}
	}
	return Crash
}

func (f *fleet) mayInject(kind Fault) bool {
	if kind == WrongClock && f.Wrong == 0 || kind == Outage && !f.Outages {
		return false
	}
	if f.Kinds == nil {
		return true
	}
	for _, k := range f.Kinds {
		if k == kind {
			return true
		}
	}
	return false
}

// drawVictim draws a slot; the leader's is the likeliest.
func (f *fleet) drawVictim() *slot {
	s, leader := f.slots[f.rng.IntN(len(f.slots))], f.rng.IntN(4) == 0
	if !leader {
		return s
	}
	for _, o := range f.slots {
		if o.process != nil && o.process.clientName == f.judge.Leader() {
			return o
		}
	}
	return s
}

// drawDuration draws how long a fault lasts: mostly less than two TTLs, at times several.
func (f *fleet) drawDuration() time.Duration {
	ttl := float64(f.TTL)
	switch f.rng.IntN(10) {
	case 0, 1, 2:
		return time.Duration(ttl * 0.3 * f.rng.Float64())
	case 3, 4, 5:
		return time.Duration(ttl * f.rng.Float64())
	case 6, 7, 8:
		return time.Duration(ttl * (1 + f.rng.Float64()))
	}
	return time.Duration(ttl * (2 + 10*f.rng.Float64()))
}

// drawPause draws the time until the next fault: often it is soon after a fire, so that the fault hits runs.
func (f *fleet) drawPause() time.Duration {
	d := time.Duration(float64(f.Faults) * -math.Log(1-f.rng.Float64()))
	if f.rng.IntN(2) == 0 {
		return d
	}
	at := time.Now().Add(d).Truncate(f.Every).Add(time.Duration(f.rng.Float64() * float64(f.Takes)))
	return max(time.Until(at), time.Millisecond)
}

func (f *fleet) inflict(kind Fault, s *slot, last time.Duration, n int, delay time.Duration) {
	m := s.process.clientName
	f.suspendPromises(kind, m, last)
	switch kind {
	case Crash:
		f.addNote("%s crashes", m)
		s.process.crash()
		f.emptySlot(s, last)
	case Outage: // fires of resting jobs come due meanwhile, and their definitions change
		f.addNote("all processes crash")
		for _, s := range f.slots {
			if s.process != nil {
				f.suspendPromises(Crash, s.process.clientName, last)
				s.process.crash()
				f.emptySlot(s, last*4)
			}
		}
	case Leave:
		f.addNote("%s leaves", m)
		s.process.leave()
		f.emptySlot(s, last)
	case Stop:
		goOn, feed := s.process.gate.stop(), f.server.Starve(m)
		f.scheduleEnd(kind, m, last, func() {
			goOn()
			feed()
		})
	case Partition:
		f.scheduleEnd(kind, m, last, f.server.Partition(m))
	case LoseRequests:
		f.scheduleEnd(kind, m, last, f.server.PartitionOneWay(m, memory.Requests))
	case LoseReplies:
		f.scheduleEnd(kind, m, last, f.server.PartitionOneWay(m, memory.Replies))
	case LostRequest:
		f.addNote("%s: the next %d requests are lost", m, n)
		f.server.LoseRequest(m, n)
	case LostReply:
		f.addNote("%s: the next %d replies are lost", m, n)
		f.server.LoseReply(m, n)
	case HeldCommit:
		for range n {
			f.scheduleEnd(kind, m, last, f.server.HoldCommit(m))
		}
	case Expire:
		f.observe() // so that the judge knows the sessions
		f.addNote("%s: its sessions expire", m)
		f.judge.ExpectForcedExpiry(m)
		f.server.Expire(m)
	case Starve:
		f.scheduleEnd(kind, m, last, f.server.Starve(m))
	case HoldWatch:
		f.scheduleEnd(kind, m, last, f.server.HoldWatch(m))
	case Lag:
		f.scheduleEnd(kind, m, last*4, f.server.Lag(m))
	case Isolate:
		f.scheduleEnd(kind, m, last, f.server.Isolate(m))
	case Delay:
		f.server.Delay(m, delay, delay/2)
		f.scheduleEnd(kind, m, last*4, func() { f.server.Delay(m, f.Latency, f.Latency) })
	case PauseServer:
		f.scheduleEnd(kind, "all", last/2, f.server.Pause())
	case Restart:
		f.addNote("server restarts")
		f.server.Restart()
	case WrongClock:
		wrong := f.Wrong
		if n%2 == 0 {
			wrong = -wrong
		}
		p := s.process
		p.clock.Store(int64(wrong))
		f.scheduleEnd(kind, m, last*4, func() { p.clock.Store(int64(p.ahead)) })
	}
}

// suspendPromises suspends the promises about time for as long as a fault may have effects.
func (f *fleet) suspendPromises(kind Fault, m string, last time.Duration) {
	const more = 3 * time.Second // to reconnect and read missed changes
	switch kind {
	case Crash, Leave:
		f.judge.Disturb(m, 1000*time.Hour)
	case LostRequest, LostReply, HeldCommit: // the fault waits for transactions
		f.judge.Disturb(m, last+2*f.Every+more)
	case Delay, Lag, WrongClock:
		f.judge.Disturb(m, last*4+more)
	case PauseServer, Restart:
		f.judge.Disturb("", last+more)
	default:
		f.judge.Disturb(m, last+more)
	}
}

// emptySlot empties a slot and schedules the start of another process there.
func (f *fleet) emptySlot(s *slot, later time.Duration) {
	s.process = nil
	f.schedule(later, func() error { return f.fillSlot(s) })
}

// scheduleEnd schedules the end of a fault.
func (f *fleet) scheduleEnd(kind Fault, whom string, d time.Duration, undo func()) {
	n := f.faultsStarted
	f.faultsStarted++
	f.addNote("%s: %s for %v, %d", whom, kind, d, n)
	f.endings[n] = undo
	f.schedule(d, func() error {
		f.endFault(n)
		return nil
	})
}

func (f *fleet) endFault(n int) {
	undo, ok := f.endings[n]
	if !ok {
		return
	}
	delete(f.endings, n)
	f.addNote("%d ends", n)
	undo()
}

// addNote adds a line to the trails of violations.
func (f *fleet) addNote(format string, args ...any) {
	f.report.AddNote(time.Now(), fmt.Sprintf(format, args...))
}
