package api

import (
	"container/list"
	"crypto/sha256"
	"sync"
	"time"
)

// Bounds of the answers that are kept for repetitions. Beyond them, the oldest ones go.
const (
	keepFor     = 24 * time.Hour
	maxOfUser   = 1000
	maxKept     = 10_000
	maxKeptSize = 16 << 20
)

// idempotency keeps the answers to acts by user, path and key, in memory only: after a restart, a repetition is another act.
type idempotency struct {
	mu     sync.Mutex
	kept   map[keptKey]*list.Element
	order  *list.List // of *keptAnswer, the oldest first
	ofUser map[string]int
	size   int
}

type keptKey struct{ user, key string }

// keptAnswer is the answer to an act. Its answer does not change once it has ended.
type keptAnswer struct {
	keptKey
	sum    [sha256.Size]byte // of the body of the request
	at     time.Time
	ended  bool
	answer []byte
	err    error
}

func newIdempotency() *idempotency {
	return &idempotency{kept: map[keptKey]*list.Element{}, order: list.New(), ofUser: map[string]int{}}
}

// begin returns the answer to the first request with a key, or reports that this is the first one, which has to end.
func (i *idempotency) begin(user, key string, sum [sha256.Size]byte) (kept *keptAnswer, first bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	i.trim(user, now)
	if e := i.kept[keptKey{user, key}]; e != nil {
		kept := e.Value.(*keptAnswer)
		switch {
		case kept.sum != sum:
			return nil, false, problemOf(keyReused, "use another Idempotency-Key for another body")
		case !kept.ended:
			return nil, false, problemOf(keyInUse, "repeat it later")
		}
		return kept, false, nil
	}
	kept = &keptAnswer{keptKey: keptKey{user, key}, sum: sum, at: now}
	i.kept[kept.keptKey] = i.order.PushBack(kept)
	i.ofUser[user]++
	return kept, true, nil
}

// end keeps the answer to a first request, or forgets a request that did nothing.
func (i *idempotency) end(kept *keptAnswer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.kept[kept.keptKey]
	i.size += len(kept.answer)
	if kept.ended = true; kept.err != nil && !mayBeDone(kept.err) {
		i.remove(e)
		return
	}
	i.trim(kept.user, time.Now())
}

// trim removes answers that are too old or too many. i.mu is held.
func (i *idempotency) trim(user string, now time.Time) {
	for e := i.order.Front(); e != nil; {
		kept, next := e.Value.(*keptAnswer), e.Next()
		switch {
		case !kept.ended:
		case now.Sub(kept.at) >= keepFor, i.order.Len() > maxKept, i.size > maxKeptSize, kept.user == user && i.ofUser[user] > maxOfUser:
			i.remove(e)
		case i.ofUser[user] <= maxOfUser:
			return // those after it are younger
		}
		e = next
	}
}

// remove removes an answer. i.mu is held.
func (i *idempotency) remove(e *list.Element) {
	kept := i.order.Remove(e).(*keptAnswer)
	delete(i.kept, kept.keptKey)
	i.size -= len(kept.answer)
	if i.ofUser[kept.user]--; i.ofUser[kept.user] == 0 {
		delete(i.ofUser, kept.user)
	}
}
