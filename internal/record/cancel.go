package record

import "github.com/rota-dev/rota/internal/shardset"

// IsSameRun reports whether r and o are attempts at the same run.
func (r Ref) IsSameRun(o Ref) bool {
	return r.Epoch == o.Epoch && r.Fire == o.Fire && r.Trigger == o.Trigger
}

// Naming returns those of shards whose element of rs is an attempt at run r, whatever its number.
func (rs Runs) Naming(shards shardset.Set, r Ref) shardset.Set {
	var named shardset.Set
	for i := range rs {
		if rs[i].IsSameRun(r) {
			named = named.Union(rs[i].Shards.Intersect(shards))
		}
	}
	return named
}

// Cancel returns the element of a list of cancelled runs for r.
func (r Ref) Cancel() Ref {
	return Ref{Epoch: r.Epoch, Fire: r.Fire, Trigger: r.Trigger, Attempt: r.Attempt}
}
