package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/recordedit"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// Rounds of kind "edits" edit records behind the fleet's back. Package judge cannot follow a plan that was
// rolled back, so these rounds have checks of their own: a shard has at most one live run, an attempt begins
// at most once, and soon after each edit every shard of every job runs again and all records can be read, or
// a log names the key.

// healsWithin bounds the time from an edit to a fleet that is whole again: the leader and another instance
// may have to join again.
const healsWithin = 15 * time.Second

// excusedFor is how long after an edit of a plan or of claims runs of that job may be doubled: the
// record that keeps them apart was changed.
const excusedFor = 15 * time.Second

// edit is a record edit that was made.
type edit struct {
	recordedit.Edit
	at time.Time
}

// EditsRow counts the outcomes of one change of one kind of record.
type EditsRow struct {
	recordedit.Kind
	recordedit.Change
	Healed, Named int
	Within        []time.Duration // to become whole, of those that did so by themselves
	Excused       int             // doubled runs of a job whose plan or claims were edited
}

// editor edits the records of a fleet and checks what follows.
type editor struct {
	*Faults
	reg     registry.Registry
	keys    record.Keys
	history map[registry.Key][]string     // values, oldest first
	begun   map[string]bool               // attempts that have begun
	live    map[string][]judge.Event      // by shard: the last calls, with their ends
	edits   []edit                        // of all rounds
	last    map[string]time.Time          // by shard: when a run began last
	rows    map[recordedit.Edit]*EditsRow // by kind and change
	broken  []string                      // violations
}

// runEdits runs the rounds of a trial of kind "edits".
func (t Trial) runEdits(ctx context.Context, f *Faults) ([]EditsRow, error) {
	reg, err := f.Server.open(ctx)
	if err != nil {
		return nil, err
	}
	defer reg.Close(context.WithoutCancel(ctx))
	keys, err := record.NewKeys("fleet", "default")
	if err != nil {
		return nil, err
	}
	h := &editor{
		Faults: f, reg: reg, keys: keys, history: map[registry.Key][]string{}, begun: map[string]bool{},
		live: map[string][]judge.Event{}, last: map[string]time.Time{}, rows: map[recordedit.Edit]*EditsRow{},
	}
	if _, err := h.awaitWhole(ctx, time.Now(), recovery); err != nil {
		return nil, err
	}
	if err := h.operateAll(ctx); err != nil {
		return nil, err
	}
	for i := range t.Rounds {
		f.Judge.Report().Faults["edits"]++
		if err := h.runRound(ctx, i, t); err != nil {
			return h.table(), fmt.Errorf("seed %d, round %d (%s): %w", t.Seed, i+1, f.LastFault, err)
		}
	}
	var left []error
	for _, p := range f.slots {
		left = append(left, p.Leave(leaving))
	}
	return h.table(), errors.Join(left...)
}

// operateAll writes each record of operators several times, so that there are older values.
func (h *editor) operateAll(ctx context.Context) error {
	op, err := operator.New(h.reg, "fleet", "default")
	if err != nil {
		return err
	}
	var errs []error
	for i := range h.Jobs {
		job := jobName(i)
		_, err := op.Trigger(ctx, job, "", nil)
		one := operator.Scope{Job: job, Instances: []string{"no-instance"}}
		errs = append(errs, err, op.Disable(ctx, one), op.Enable(ctx, one)) // no pause: one that is rolled back to would stay
	}
	scope := operator.Scope{Instances: []string{"no-instance"}}
	errs = append(errs, op.Disable(ctx, scope), op.Enable(ctx, scope))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err = h.awaitWhole(ctx, time.Now(), recovery)
	return err
}

// runRound edits one record or, every third time, two at once.
func (h *editor) runRound(ctx context.Context, i int, t Trial) error {
	n := 1 + min(1, i%3/2)
	var made []edit
	for len(made) < n {
		one, ok, err := h.makeEdit(ctx, i+len(made))
		if err != nil {
			return err
		}
		if ok {
			made = append(made, one)
		}
	}
	var texts []string
	for _, one := range made {
		texts = append(texts, one.String())
	}
	h.noteFault("%s", strings.Join(texts, " and "))
	before := len(h.edits) - len(made)
	took, err := h.awaitWhole(ctx, made[0].at, healsWithin)
	outcome := fmt.Sprintf("healed in %v", took.Round(time.Millisecond))
	if err != nil {
		named, nerr := h.restoreNamed(ctx, made)
		if nerr != nil {
			return fmt.Errorf("%w; %w", err, nerr)
		}
		outcome = "restored after a log named " + strings.Join(named, ", ")
	}
	for _, one := range h.edits[before:] {
		row := h.rowOf(one)
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
	if t.Progress != nil {
		t.Progress(fmt.Sprintf("%s round %d of %d: %s; %s", t, i+1, t.Rounds, h.LastFault, outcome))
	}
	if len(h.broken) > 0 {
		return errors.New(strings.Join(h.broken, "\n"))
	}
	return nil
}

func (h *editor) rowOf(one edit) *EditsRow {
	id := recordedit.Edit{Kind: one.Kind, Change: one.Change}
	if h.rows[id] == nil {
		h.rows[id] = &EditsRow{Kind: one.Kind, Change: one.Change}
	}
	return h.rows[id]
}

func (h *editor) table() (rows []EditsRow) {
	for _, kind := range recordedit.Kinds {
		for _, change := range recordedit.Changes {
			if row := h.rows[recordedit.Edit{Kind: kind, Change: change}]; row != nil {
				rows = append(rows, *row)
			}
		}
	}
	return rows
}

// makeEdit edits a record, and reports whether there was one to edit. Each pair of kind and change has
// its turn.
func (h *editor) makeEdit(ctx context.Context, turn int) (edit, bool, error) {
	all := len(recordedit.Kinds) * len(recordedit.Changes)
	pick := (turn*7 + h.Rand.IntN(all)) % all
	one := edit{Edit: recordedit.Edit{
		Kind:   recordedit.Kinds[pick%len(recordedit.Kinds)],
		Change: recordedit.Changes[pick/len(recordedit.Kinds)],
	}}
	if err := h.drawKey(ctx, &one); err != nil {
		return one, false, err
	}
	e, err := h.reg.Get(ctx, one.Key, registry.ReadOptions{Fresh: true})
	if errors.Is(err, registry.ErrNotFound) {
		return one, false, nil
	} else if err != nil {
		return one, false, err
	}
	op, ok := one.Op(e, h.history[one.Key], h.Rand.IntN)
	if !ok {
		return one, false, nil
	}
	one.at = time.Now()
	if _, err := registry.Apply(ctx, h.reg, registry.Txn{Then: []registry.Op{op}}); errors.Is(err, registry.ErrConflict) {
		return one, false, nil
	} else if err != nil {
		return one, false, err
	}
	h.edits = append(h.edits, one)
	return one, true, nil
}

// drawKey draws the key of an edit.
func (h *editor) drawKey(ctx context.Context, one *edit) error {
	job := jobName(h.Rand.IntN(h.Jobs))
	if !one.Kind.OfIncarnation() {
		one.SetKey(h.keys, job, "")
		return nil
	}
	dir := h.keys.Members()
	if one.Kind == recordedit.Instance {
		dir = h.keys.Instances()
	}
	l, err := h.reg.List(ctx, dir, registry.ReadOptions{Fresh: true})
	if err != nil || len(l.Entries) == 0 {
		return errors.Join(err, fmt.Errorf("%s has %d records", dir, len(l.Entries)))
	}
	e := l.Entries[h.Rand.IntN(len(l.Entries))]
	incarnation := e.Key.Name()
	if one.Kind == recordedit.Instance {
		incarnation = record.Incarnation(strings.TrimPrefix(e.Key.Name(), "~"), e.Owner)
	}
	one.SetKey(h.keys, job, incarnation)
	return nil
}

func jobName(i int) string { return fmt.Sprintf("job-%02d", i) }

// restoreNamed restores or deletes the edited records that the fleet could not restore. It requires that a log names
// one of their keys, and that the fleet becomes whole then.
func (h *editor) restoreNamed(ctx context.Context, made []edit) (named []string, err error) {
	for _, one := range made {
		if h.logsName(one.Key) {
			named = append(named, string(one.Key))
		}
		e, err := h.reg.Get(ctx, one.Key, registry.ReadOptions{Fresh: true})
		if err != nil || one.Change == recordedit.RollBack {
			continue // it is deleted, or readable
		}
		op := registry.Delete(one.Key, e.Modified)
		if values := h.history[one.Key]; len(values) > 0 && !one.Key.Owned() && one.Kind != recordedit.Claims && one.Kind != recordedit.Member {
			op = registry.Set(one.Key, e.Modified, []byte(values[len(values)-1]))
		}
		if _, err := registry.Apply(ctx, h.reg, registry.Txn{Then: []registry.Op{op}}); err != nil && !errors.Is(err, registry.ErrConflict) {
			return nil, err
		}
	}
	for i := range h.edits[len(h.edits)-len(made):] { // deleting claims may double runs as well
		h.edits[len(h.edits)-len(made)+i].at = time.Now()
	}
	if len(named) == 0 {
		return nil, errors.New("no log names the key")
	}
	_, err = h.awaitWhole(ctx, time.Now(), recovery)
	return named, err
}

// restoreMeta restores the record of the namespace, which only joining processes read: a later round must
// not meet the edit of this one.
func (h *editor) restoreMeta(ctx context.Context) error {
	e, err := h.reg.Get(ctx, h.keys.Meta(), registry.ReadOptions{Fresh: true})
	values := h.history[h.keys.Meta()]
	if len(values) == 0 {
		return nil
	}
	last := values[len(values)-1]
	if err == nil && string(e.Value) == last {
		return nil
	}
	op := registry.Set(e.Key, e.Modified, []byte(last))
	if errors.Is(err, registry.ErrNotFound) {
		op = registry.Create(h.keys.Meta(), []byte(last))
	} else if err != nil {
		return err
	}
	if _, err = registry.Apply(ctx, h.reg, registry.Txn{Then: []registry.Op{op}}); errors.Is(err, registry.ErrConflict) {
		return nil // a process that joined has created it
	}
	return err
}

// logsName reports whether a process named a key in a warning or an error.
func (h *editor) logsName(key registry.Key) bool {
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

// writeEdits writes the outcomes of each change of each kind of record.
func writeEdits(w io.Writer, o *Outcome) error {
	if len(o.Edits) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nrecord\tchange\thealed\tin\tnamed\tnot healed\tdoubled runs, excused\t")
	for _, r := range o.Edits {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%d\t0\t%d\t\n", r.Kind, r.Change, r.Healed, quantiles(r.Within), r.Named, r.Excused)
	}
	return t.Flush()
}
