package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/operator"
)

// Shards is the list of the shards of a job.
type Shards struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Job     string    `json:"job"`
	Shards  []Shard   `json:"shards"`
}

// Shard is one shard.
type Shard struct {
	operator.ShardStatus
	State    string `json:"state"`
	Disabled bool   `json:"disabled"`
	Note     string `json:"note,omitempty"`
}

// ShardsOf returns the shards of a job, of one owner if it is not empty.
func ShardsOf(st operator.Status, owner string, now time.Time) Shards {
	v := Shards{Version: Version, At: now, Job: st.Job}
	notes := shardNotes(&st)
	for i := range st.PerShard {
		s := &st.PerShard[i]
		if owner != "" && s.Owner != owner {
			continue
		}
		v.Shards = append(v.Shards, Shard{*s, shardState(&st, s), contains(st.Disabled, s.Shard), notes[s.Shard]})
	}
	return v
}

// contains reports whether sorted has n.
func contains(sorted []int, n int) bool {
	_, found := slices.BinarySearch(sorted, n)
	return found
}

// shardState returns the state of a shard.
func shardState(st *operator.Status, s *operator.ShardStatus) string {
	switch {
	case s.Owner == "":
		return "no owner"
	case contains(st.Frozen, s.Shard):
		return "moving"
	case s.Running:
		return "running"
	case contains(st.Disabled, s.Shard):
		return "disabled"
	case st.Paused:
		return "paused"
	}
	return "idle"
}

// failedNote begins the note with the error of a shard's latest failure.
const failedNote = "failed: "

// shardNotes returns, by shard, what is worth knowing about it: pending re-runs, waiting runs, the
// owner's state, and the latest failure.
func shardNotes(st *operator.Status) map[int]string {
	notes := map[int]string{}
	add := func(shards []int, format string, args ...any) {
		for _, s := range shards {
			if notes[s] != "" {
				notes[s] += "; "
			}
			notes[s] += fmt.Sprintf(format, args...)
		}
	}
	for _, r := range st.Reruns {
		add(r.Shards, "attempt %d is pending", r.Attempt)
	}
	for _, m := range st.Members {
		if !m.Alive {
			add(m.Shards, "session of %s expired", m.Instance)
		}
		if m.Draining {
			add(m.Shards, "%s drains", m.Instance)
		}
		add(m.Waiting.Shards, "waits for a worker behind %s", m.Waiting.Behind)
		add(m.Blocked, "%s may not own it: an earlier run there has not returned", m.Instance)
	}
	failed := map[int]string{}
	for _, f := range st.Failures {
		for _, s := range f.Shards {
			failed[s] = f.Error
		}
	}
	for s, text := range failed {
		add([]int{s}, failedNote+"%s", text)
	}
	return notes
}

// Screen returns a table with a row for each range of shards that are alike.
func (v Shards) Screen(t Times) Screen {
	table := Table{Columns: columns("SHARDS", "~OWNER", "STATE", "CLAIMED TO", "TRY", "TRIGGER", "~NOTE")}
	for i := 0; i < len(v.Shards); {
		first := v.Shards[i]
		j := i
		for j < len(v.Shards) && sameButNumber(first, v.Shards[j], j-i) {
			j++
		}
		shards, try, trigger := fmt.Sprint(first.Shard), fmt.Sprint(first.Attempt), "-"
		if j > i+1 {
			shards = fmt.Sprintf("%d-%d", first.Shard, v.Shards[j-1].Shard)
		}
		if first.Attempt == 0 {
			try = "-"
		}
		if first.LastTrigger != 0 {
			trigger = fmt.Sprintf("#%d", first.LastTrigger)
		}
		table.Rows = append(table.Rows, []string{
			shards, orDash(first.Owner), first.State, t.At(first.LastFire), try, trigger, orDash(first.Note),
		})
		i = j
	}
	return Screen{table.orLine("no shards")}
}

// sameButNumber reports whether b is like a, and its number is higher by n.
func sameButNumber(a, b Shard, n int) bool {
	if b.Shard != a.Shard+n || !a.LastFire.Equal(b.LastFire) {
		return false
	}
	b.Shard, b.LastFire = a.Shard, a.LastFire
	return a == b
}

// Names returns the numbers of the shards.
func (v Shards) Names() []string {
	return namesOf(v.Shards, func(s *Shard) string { return fmt.Sprint(s.Shard) })
}

// Items returns the shards.
func (v Shards) Items() []any { return itemsOf(v.Shards) }
