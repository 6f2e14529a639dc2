package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry"
)

// The rounds of kind "hands" change records behind the fleet's back. The books of package judge
// cannot be kept across a plan that was rolled back, so these rounds have checks of their own: a
// shard has at most one live run, an attempt begins at most once, and soon after each change every
// shard of every job runs again and all records can be read, or a log names the key.

// healsWithin bounds the time from a change to a fleet that is whole again: the leader and another
// may have to join again.
const healsWithin = 15 * time.Second

// excusedFor is how long after a change of a plan or of claims runs of that job may be doubled: the
// record that keeps them apart was taken away.
const excusedFor = 15 * time.Second

// handKinds are the kinds of records, and handActs what is done to them.
var (
	handKinds = []string{"meta", "instance", "leader", "present", "member", "job", "control", "group control", "plan", "claims"}
	handActs  = []string{"delete", "garbage", "absurd", "roll back"}
)

// absurd is JSON that each kind of record can be decoded from as far as types go, and whose values
// no record has.
const absurd = `{"format":-7,"fence_base":0,"incarnation":"nobody.nothing","session":"nothing","name":"","job":"","jobs":["",""],` +
	`"shards":-3,"revision":-9,"owners":{"":"0-9999"},"epochs":[],"weight":-5,"successors":["","."],"triggers":[{"number":0}],"last_trigger":0}`

// hand is one change of a record.
type hand struct {
	kind, act string
	key       registry.Key
	job       string // that the record is about; "" for all or none
	at        time.Time
}

func (h hand) String() string { return fmt.Sprintf("%s %s", h.act, h.key) }

// HandsRow counts what came of one act on one kind of record.
type HandsRow struct {
	Kind, Act     string
	Healed, Named int
	Within        []time.Duration // to heal, of those that healed by themselves
	Excused       int             // doubled runs of a job whose plan or claims had been changed
}

// hands is what rounds of that kind know.
type hands struct {
	*Faults
	reg     registry.Registry
	keys    record.Keys
	history map[registry.Key][][]byte // values, oldest first
	begun   map[string]bool           // attempts that have begun
	live    map[string][]judge.Event  // by shard: the calls that began, with their ends
	acts    []hand                    // of all rounds
	last    map[string]time.Time      // by shard: when a run began last
	rows    map[[2]string]*HandsRow
	broken  []string // violations
}

// runHands is the rounds of a trial of kind "hands".
func (t Trial) runHands(ctx context.Context, f *Faults) ([]HandsRow, error) {
	reg, err := registryurl.Open(ctx, f.Server.url(f.Server.Addrs()), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer reg.Close(context.WithoutCancel(ctx))
	keys, err := record.NewKeys("fleet", "default")
	if err != nil {
		return nil, err
	}
	h := &hands{
		Faults: f, reg: reg, keys: keys, history: map[registry.Key][][]byte{}, begun: map[string]bool{},
		live: map[string][]judge.Event{}, last: map[string]time.Time{}, rows: map[[2]string]*HandsRow{},
	}
	if _, err := h.heals(ctx, time.Now(), recovery); err != nil {
		return nil, err
	}
	if err := h.operate(ctx); err != nil {
		return nil, err
	}
	for i := range t.Rounds {
		f.Judge.Report().Faults["hands"]++
		if err := h.round(ctx, i, t); err != nil {
			return h.table(), fmt.Errorf("seed %d, round %d (%s): %w", t.Seed, i+1, f.Struck, err)
		}
	}
	var left []error
	for _, p := range f.slots {
		left = append(left, p.Leave(leaving))
	}
	return h.table(), errors.Join(left...)
}

// operate makes the records of operators, and older values of them.
func (h *hands) operate(ctx context.Context) error {
	op, err := coordinator.NewOperator(h.reg, "fleet", "default")
	if err != nil {
		return err
	}
	var errs []error
	for i := range h.Jobs {
		job := jobName(i)
		_, err := op.Trigger(ctx, job, "", nil)
		one := coordinator.Scope{Job: job, Instances: []string{"somebody"}}
		errs = append(errs, err, op.Disable(ctx, one), op.Enable(ctx, one)) // a pause that is rolled back to would hold
	}
	scope := coordinator.Scope{Instances: []string{"somebody"}}
	errs = append(errs, op.Disable(ctx, scope), op.Enable(ctx, scope))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err = h.heals(ctx, time.Now(), recovery)
	return err
}

// round changes one record or, every third time, two at once.
func (h *hands) round(ctx context.Context, i int, t Trial) error {
	n := 1 + min(1, i%3/2)
	var struck []hand
	for len(struck) < n {
		one, ok, err := h.strikeOne(ctx, i+len(struck))
		if err != nil {
			return err
		}
		if ok {
			struck = append(struck, one)
		}
	}
	var texts []string
	for _, one := range struck {
		texts = append(texts, one.String())
	}
	h.strike("%s", strings.Join(texts, " and "))
	before := len(h.acts) - len(struck)
	took, err := h.heals(ctx, struck[0].at, healsWithin)
	outcome := fmt.Sprintf("healed in %v", took.Round(time.Millisecond))
	if err != nil {
		named, nerr := h.mend(ctx, struck)
		if nerr != nil {
			return fmt.Errorf("%w; %w", err, nerr)
		}
		outcome = "named: " + strings.Join(named, ", ")
	}
	for _, one := range h.acts[before:] {
		row := h.row(one)
		if err != nil {
			row.Named++
		} else {
			row.Healed++
			row.Within = append(row.Within, took)
		}
	}
	if err := h.restoreMeta(ctx); err != nil {
		return err
	}
	if t.Tell != nil {
		t.Tell(fmt.Sprintf("%s round %d of %d: %s; %s", t, i+1, t.Rounds, h.Struck, outcome))
	}
	if len(h.broken) > 0 {
		return errors.New(strings.Join(h.broken, "\n"))
	}
	return nil
}

func (h *hands) row(one hand) *HandsRow {
	id := [2]string{one.kind, one.act}
	if h.rows[id] == nil {
		h.rows[id] = &HandsRow{Kind: one.kind, Act: one.act}
	}
	return h.rows[id]
}

func (h *hands) table() (rows []HandsRow) {
	for _, kind := range handKinds {
		for _, act := range handActs {
			if row := h.rows[[2]string{kind, act}]; row != nil {
				rows = append(rows, *row)
			}
		}
	}
	return rows
}

// strikeOne changes a record, and reports whether there was one to change. Each pair of kind and
// act has its turn.
func (h *hands) strikeOne(ctx context.Context, turn int) (hand, bool, error) {
	all := len(handKinds) * len(handActs)
	pick := (turn*7 + int(h.Rand.IntN(all))) % all
	one := hand{kind: handKinds[pick%len(handKinds)], act: handActs[pick/len(handKinds)]}
	if err := h.choose(ctx, &one); err != nil {
		return one, false, err
	}
	e, err := h.reg.Get(ctx, one.key, registry.ReadOptions{Fresh: true})
	if errors.Is(err, registry.ErrNotFound) {
		return one, false, nil
	} else if err != nil {
		return one, false, err
	}
	var op registry.Op
	switch one.act {
	case "delete":
		op = registry.Delete(one.key, e.Modified)
	case "garbage":
		op = registry.Set(one.key, e.Modified, []byte("garbage {"))
	case "absurd":
		op = registry.Set(one.key, e.Modified, []byte(absurd))
	default:
		old := h.older(one.key, e.Value)
		if old == nil {
			return one, false, nil
		}
		op = registry.Set(one.key, e.Modified, old)
	}
	one.at = time.Now()
	if _, err := registry.Apply(ctx, h.reg, registry.Txn{Then: []registry.Op{op}}); errors.Is(err, registry.ErrConflict) {
		return one, false, nil
	} else if err != nil {
		return one, false, err
	}
	h.acts = append(h.acts, one)
	return one, true, nil
}

// older returns a value that the key has had.
func (h *hands) older(key registry.Key, now []byte) []byte {
	values := slices.DeleteFunc(slices.Clone(h.history[key]), func(v []byte) bool { return bytes.Equal(v, now) })
	if len(values) == 0 {
		return nil
	}
	return values[h.Rand.IntN(len(values))]
}

// choose chooses the record of a kind.
func (h *hands) choose(ctx context.Context, one *hand) error {
	segment := jobName(h.Rand.IntN(h.Jobs))
	var dir registry.Key
	switch one.kind {
	case "meta":
		one.key = h.keys.Meta()
	case "leader":
		one.key = h.keys.Leader()
	case "present":
		one.key = h.keys.Seat()
	case "job":
		one.key, one.job = h.keys.Job(segment), segment
	case "control":
		one.key, one.job = h.keys.Control(segment), segment
	case "group control":
		one.key = h.keys.GroupControl()
	case "plan":
		one.key, one.job = h.keys.Plan(segment), segment
	case "instance":
		dir = h.keys.Instances()
	default:
		dir = h.keys.Members()
	}
	if dir == "" {
		return nil
	}
	l, err := h.reg.List(ctx, dir, registry.ReadOptions{Fresh: true})
	if err != nil || len(l.Entries) == 0 {
		return errors.Join(err, fmt.Errorf("%s has %d records", dir, len(l.Entries)))
	}
	one.key = l.Entries[h.Rand.IntN(len(l.Entries))].Key
	if one.kind == "claims" {
		one.key, one.job = h.keys.Claims(one.key.Name(), segment), segment
	}
	return nil
}

func jobName(i int) string { return fmt.Sprintf("job-%02d", i) }

// heals waits until the fleet is whole, and returns how long that took from since.
func (h *hands) heals(ctx context.Context, since time.Time, within time.Duration) (time.Duration, error) {
	for {
		if err := h.watch(ctx); err != nil {
			return 0, err
		}
		why, err := h.lacks(ctx, since)
		if err != nil {
			return 0, err
		}
		if why == "" {
			return time.Since(since), nil
		}
		if time.Since(since) > within {
			return 0, fmt.Errorf("not whole after %v: %s", within, why)
		}
		if err := sleepFor(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

func sleepFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// watch takes in what was committed and what the processes report.
func (h *hands) watch(ctx context.Context) error {
	calls, err := h.hear()
	if err != nil {
		return err
	}
	if err := h.log.Sync(ctx); err != nil {
		return err
	}
	for _, c := range h.log.Take() {
		for _, op := range c.Then {
			if len(op.Value) == 0 || string(op.Value) == absurd || !bytes.HasPrefix(op.Value, []byte("{")) {
				continue
			}
			values := append(h.history[op.Key], op.Value)
			h.history[op.Key] = values[max(0, len(values)-8):]
		}
	}
	for _, e := range calls {
		h.judgeCall(e)
	}
	for _, p := range h.slots {
		if !p.told && p.over() {
			return fmt.Errorf("%s gave up: %w; it logged last:\n%s", p.Client, p.proc.Err(), p.lastLog())
		}
	}
	return nil
}

// judgeCall checks a call against those that are known.
func (h *hands) judgeCall(e judge.Event) {
	shard := fmt.Sprintf("%s/%d", e.Job, e.Shard)
	calls := h.live[shard]
	if !e.End.IsZero() {
		for i := range calls {
			if calls[i].Call == e.Call {
				calls[i] = e
			}
		}
		return
	}
	h.Judge.Report().Claims++
	h.last[shard] = e.Start
	attempt := fmt.Sprintf("%s fire %v trigger %d attempt %d", shard, e.Fire.UTC(), e.Trigger, e.Attempt)
	if h.begun[attempt] {
		h.doubled(e, "begun twice: "+attempt)
	}
	h.begun[attempt] = true
	for _, other := range calls {
		if end := lifeEnd(other); end.IsZero() || end.After(e.Start.Add(time.Millisecond)) {
			h.doubled(e, fmt.Sprintf("two live runs: %s by %s, while %v by %s since %v", attempt, e.Client, other.Fire.UTC(), other.Client, other.Start))
		}
	}
	const most = 8
	h.live[shard] = append(calls[max(0, len(calls)-most):], e)
}

// lifeEnd returns when a call's context or the call ended; zero: neither has.
func lifeEnd(e judge.Event) time.Time {
	if !e.Told.IsZero() {
		return e.Told
	}
	return e.End
}

// doubled records a doubled run, or excuses it by a recent change of a record.
func (h *hands) doubled(e judge.Event, text string) {
	for i, one := range slices.Backward(h.acts) {
		if one.job == e.Job && e.Start.Sub(one.at) < excusedFor && (one.keepsApart() || h.asksAgain(i, e)) {
			h.row(one).Excused++
			return
		}
	}
	h.broken = append(h.broken, text)
}

// keepsApart reports whether the record that was changed keeps runs of its job apart.
func (h hand) keepsApart() bool { return h.kind == "plan" || h.kind == "claims" }

// asksAgain reports whether the i-th act wrote an older intent, which may hold a trigger that has
// run, after the watermarks of the job's triggers were taken away.
func (h *hands) asksAgain(i int, e judge.Event) bool {
	return e.Trigger > 0 && h.acts[i].kind == "control" && h.acts[i].act == "roll back" &&
		slices.ContainsFunc(h.acts[:i], func(o hand) bool { return o.keepsApart() && o.job == e.Job })
}

// lacks returns what keeps the fleet from being whole, "" if it is.
func (h *hands) lacks(ctx context.Context, since time.Time) (string, error) {
	for i := range h.Jobs {
		for s := range h.Shards {
			if shard := fmt.Sprintf("%s/%d", jobName(i), s); !h.last[shard].After(since) {
				return shard + " has not run", nil
			}
		}
	}
	live, err := h.complete(ctx)
	if err != nil || len(live) != h.Instances {
		return fmt.Sprintf("%d of %d instances have both of their records", len(live), h.Instances), err
	}
	for i := range h.Jobs {
		if why, err := h.lacksOf(ctx, jobName(i), live); why != "" || err != nil {
			return why, err
		}
	}
	return h.lacksElse(ctx)
}

// complete returns the incarnations that live and have both of their records.
func (h *hands) complete(ctx context.Context) (map[string]bool, error) {
	instances, err := h.reg.List(ctx, h.keys.Instances(), registry.ReadOptions{Fresh: true})
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for _, e := range instances.Entries {
		inc := record.Incarnation(strings.TrimPrefix(e.Key.Name(), "~"), e.Owner)
		m, err := h.reg.Get(ctx, h.keys.Member(inc), registry.ReadOptions{})
		if err != nil {
			continue
		}
		if member, err := record.Decode[record.Member](m.Value); err == nil && len(member.Jobs) >= h.Jobs {
			live[inc] = true
		}
	}
	return live, nil
}

// lacksOf returns what is wrong with the records of a job.
func (h *hands) lacksOf(ctx context.Context, job string, live map[string]bool) (string, error) {
	e, err := h.reg.Get(ctx, h.keys.Plan(job), registry.ReadOptions{})
	if err != nil {
		return absent(err, h.keys.Plan(job))
	}
	p, err := record.DecodePlan(e.Value)
	if err != nil {
		return fmt.Sprintf("%s: %v", e.Key, err), nil
	}
	owned := 0
	for inc, shards := range p.Owners {
		if live[inc] {
			owned += shards.Len()
		}
	}
	if owned != h.Shards || p.Problem != "" {
		return fmt.Sprintf("live instances own %d of %d shards of %s; problem %q", owned, h.Shards, job, p.Problem), nil
	}
	e, err = h.reg.Get(ctx, h.keys.Job(job), registry.ReadOptions{})
	if err != nil {
		return absent(err, h.keys.Job(job))
	}
	if _, _, err := record.DecodeDefinition(e.Value); err != nil {
		return fmt.Sprintf("%s: %v", e.Key, err), nil
	}
	if e, err = h.reg.Get(ctx, h.keys.Control(job), registry.ReadOptions{}); err == nil {
		if c, err := record.DecodeControl(e.Value); err != nil || c.Job != job {
			return fmt.Sprintf("%s is of %q: %v", e.Key, job, err), nil
		}
	}
	return "", nil
}

// absent returns that a record is not there.
func absent(err error, key registry.Key) (string, error) {
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrForeign) {
		return fmt.Sprintf("%s: %v", key, err), nil
	}
	return "", err
}

// lacksElse returns what is wrong with the records of no job.
func (h *hands) lacksElse(ctx context.Context) (string, error) {
	e, err := h.reg.Get(ctx, h.keys.Leader(), registry.ReadOptions{})
	if err != nil {
		return absent(err, h.keys.Leader())
	}
	leader, err := record.Decode[record.Leader](e.Value)
	if err != nil {
		return fmt.Sprintf("%s: %v", e.Key, err), nil
	}
	if e, err = h.reg.Get(ctx, h.keys.Seat(), registry.ReadOptions{}); err != nil {
		return absent(err, h.keys.Seat())
	}
	if e.Owner != leader.Session {
		return "the leader is not the one in office", nil
	}
	return "", nil
}

// mend mends what a fleet could not, if one of its logs names the key, and requires that it heals then.
func (h *hands) mend(ctx context.Context, struck []hand) (named []string, err error) {
	for _, one := range struck {
		if h.logs(one.key) {
			named = append(named, string(one.key))
		}
		e, err := h.reg.Get(ctx, one.key, registry.ReadOptions{Fresh: true})
		if err != nil || one.act == "roll back" {
			continue // it is not there, or can be read
		}
		op := registry.Delete(one.key, e.Modified)
		if values := h.history[one.key]; len(values) > 0 && !one.key.Owned() && one.kind != "claims" && one.kind != "member" {
			op = registry.Set(one.key, e.Modified, values[len(values)-1])
		}
		if _, err := registry.Apply(ctx, h.reg, registry.Txn{Then: []registry.Op{op}}); err != nil && !errors.Is(err, registry.ErrConflict) {
			return nil, err
		}
	}
	for i := range h.acts[len(h.acts)-len(struck):] { // claims that are deleted keep runs apart no more
		h.acts[len(h.acts)-len(struck)+i].at = time.Now()
	}
	if len(named) == 0 {
		return nil, errors.New("no log names the key")
	}
	_, err = h.heals(ctx, time.Now(), recovery)
	return named, err
}

// restoreMeta restores the record of the namespace, which is read by processes that join only: a
// later round must not meet the garbage of this one.
func (h *hands) restoreMeta(ctx context.Context) error {
	e, err := h.reg.Get(ctx, h.keys.Meta(), registry.ReadOptions{Fresh: true})
	values := h.history[h.keys.Meta()]
	if err != nil || len(values) == 0 || bytes.Equal(e.Value, values[0]) {
		return nil // the next process that joins creates it
	}
	_, err = registry.Apply(ctx, h.reg, registry.Txn{Then: []registry.Op{registry.Set(e.Key, e.Modified, values[0])}})
	return err
}

// logs reports whether a process named a key in a warning or an error.
func (h *hands) logs(key registry.Key) bool {
	for _, p := range h.slots {
		text, err := os.ReadFile(p.stderr.Name())
		if err != nil {
			continue
		}
		for line := range bytes.Lines(text) {
			if bytes.Contains(line, []byte(key)) && (bytes.Contains(line, []byte("level=ERROR")) || bytes.Contains(line, []byte("level=WARN"))) {
				return true
			}
		}
	}
	return false
}

// writeHands writes what came of each act on each kind of record.
func writeHands(w io.Writer, o *Outcome) error {
	if len(o.Hands) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nrecord\tact\thealed\tin\tnamed\tnot healed\tdoubled, as the record kept them apart\t")
	for _, r := range o.Hands {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d\t0\t%d\t\n", r.Kind, r.Act, r.Healed, quantiles(r.Within), r.Named, r.Excused)
	}
	return t.Flush()
}
