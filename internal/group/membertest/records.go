package membertest

import (
	"strings"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// NewEditor returns the client handle by which the test edits records.
func (g *Group) NewEditor() *memory.Client { return g.Server.Client(g.editor) }

// GetRecord reads a record from the server.
func (g *Group) GetRecord(key registry.Key) (registry.Entry, bool) {
	g.T.Helper()
	for _, e := range g.Server.Dump() {
		if e.Key == key {
			return e, true
		}
	}
	return registry.Entry{}, false
}

// GetText returns the value of a record, "" if it does not exist.
func (g *Group) GetText(key registry.Key) string {
	e, _ := g.GetRecord(key)
	return string(e.Value)
}

// PutRecord creates or replaces a record, and waits until the members have observed it.
func (g *Group) PutRecord(key registry.Key, value string) {
	g.T.Helper()
	g.WriteRecord(key, value)
	synctest.Wait()
}

// WriteRecord creates or replaces a record. Unlike PutRecord a hook may call it.
func (g *Group) WriteRecord(key registry.Key, value string) {
	g.T.Helper()
	op := registry.Create(key, []byte(value))
	if e, ok := g.GetRecord(key); ok {
		op = registry.Set(key, e.Modified, []byte(value))
	}
	_, err := g.NewEditor().Txn(g.T.Context(), registry.Txn{Then: []registry.Op{op}})
	require.NoError(g.T, err)
}

// SpoilRecord makes a record unreadable. A hook may call it.
func (g *Group) SpoilRecord(key registry.Key) {
	g.T.Helper()
	g.WriteRecord(key, "spoilt")
}

// RemoveRecord deletes a record, and waits until the members have observed it.
func (g *Group) RemoveRecord(key registry.Key) {
	g.T.Helper()
	e, ok := g.GetRecord(key)
	require.True(g.T, ok, key)
	_, err := g.NewEditor().Txn(g.T.Context(), registry.Txn{Then: []registry.Op{registry.Delete(key, e.Modified)}})
	require.NoError(g.T, err)
	synctest.Wait()
}

// RemoveRecords deletes records by one commit, and waits until the members have observed it.
func (g *Group) RemoveRecords(keys ...registry.Key) {
	g.T.Helper()
	var ops []registry.Op
	for _, k := range keys {
		e, ok := g.GetRecord(k)
		require.True(g.T, ok, k)
		ops = append(ops, registry.Delete(k, e.Modified))
	}
	_, err := g.NewEditor().Txn(g.T.Context(), registry.Txn{Then: ops})
	require.NoError(g.T, err)
	synctest.Wait()
}

// OwnKeys returns the keys of a member's own records.
func (g *Group) OwnKeys(w *Worker) (instance, member registry.Key) {
	g.T.Helper()
	return g.Keys.Instance(w.Instance()), g.Keys.Member(w.Incarnation())
}

// ReadPlan returns the plan of a job, which must exist.
func (g *Group) ReadPlan(job string) *record.Plan {
	g.T.Helper()
	e, ok := g.GetRecord(g.Keys.Plan(record.Segment(job)))
	require.True(g.T, ok, "%s has no plan", job)
	p, err := record.DecodePlan(e.Value)
	require.NoError(g.T, err)
	return p
}

// ReadOwners returns the shards of a job by the names of their owners.
func (g *Group) ReadOwners(job string) map[string]string {
	g.T.Helper()
	out := map[string]string{}
	for inc, shards := range g.ReadPlan(job).Owners {
		name, _, _ := strings.Cut(inc, ".")
		out[name] = shards.String()
	}
	return out
}

// CountOwned returns the number of shards of a job that each instance owns.
func (g *Group) CountOwned(job string) map[string]int {
	g.T.Helper()
	out := map[string]int{}
	for inc, shards := range g.ReadPlan(job).Owners {
		name, _, _ := strings.Cut(inc, ".")
		out[name] = shards.Len()
	}
	return out
}

// ReadClaims returns an incarnation's claims record of a job, the zero value if there is none.
func (g *Group) ReadClaims(incarnation, job string) record.Claims {
	g.T.Helper()
	e, ok := g.GetRecord(g.Keys.Claims(incarnation, record.Segment(job)))
	if !ok {
		return record.Claims{}
	}
	c, err := record.DecodeClaims(e.Value)
	require.NoError(g.T, err)
	return c
}

// ReadLeader returns the leader record, which must exist.
func (g *Group) ReadLeader() record.Leader {
	g.T.Helper()
	e, ok := g.GetRecord(g.Keys.Leader())
	require.True(g.T, ok, "there is no leader")
	l, err := record.Decode[record.Leader](e.Value)
	require.NoError(g.T, err)
	return l
}

// ReadLeaderName returns the name of the instance that holds the seat, "" if the seat is free.
func (g *Group) ReadLeaderName() string {
	g.T.Helper()
	e, ok := g.GetRecord(g.Keys.Seat())
	if !ok {
		return ""
	}
	for _, w := range g.Members {
		if w.Session() == e.Owner {
			return w.Instance()
		}
	}
	return "a stranger"
}

// AwaitNextLeader waits until a stuck leader must have been found, and returns the name of the
// instance that holds the seat then.
func (g *Group) AwaitNextLeader() string {
	g.T.Helper()
	time.Sleep(2 * elector.MinPatience)
	synctest.Wait()
	return g.ReadLeaderName()
}

// SumCounts returns a job's counts: those of its plan and of all live members' claims records.
func (g *Group) SumCounts(job string) record.Counts {
	g.T.Helper()
	sum := g.ReadPlan(job).Counts
	for _, w := range g.Members {
		sum = sum.Add(g.ReadClaims(w.Incarnation(), job).Counts)
	}
	return sum
}

// ReadStatusCounts returns a job's counts as Operator.Status reports them.
func (g *Group) ReadStatusCounts(job string) operator.Counts {
	g.T.Helper()
	o, _ := g.NewOperator()
	st, err := o.Status(g.T.Context(), job)
	require.NoError(g.T, err)
	return st.Counts
}
