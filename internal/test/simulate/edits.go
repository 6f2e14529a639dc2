package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/recordedit"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// Simulations of record edits edit records behind a fleet's back; docs/protocol/record-edits.md states
// the reaction. Package judge cannot follow a plan that was rolled back, so these simulations have
// weaker checks of their own, in edits_checks.go.

// healsWithin bounds the time from the last edit, or from the restoring of a record, until the fleet is
// whole, in addition to the time between two fires.
const healsWithin = time.Minute

// EditsConfig configures a simulation of record edits.
type EditsConfig struct {
	Config                   // Faults, For and Kinds are not used
	Rounds int               // each edits a record or two
	Kind   recordedit.Kind   // of all edited records; "" for all kinds
	Change recordedit.Change // of all of them; "" for all changes
}

// edit is a record edit that was made.
type edit struct {
	recordedit.Edit
	at       time.Time
	value    string // the value that was written; "" if the record was deleted
	previous string // the value before
}

func (e *edit) String() string { return clockText(e.at) + " " + e.Edit.String() }

// endsSession reports whether an instance has to join again because of the edit.
func (e *edit) endsSession() bool {
	switch e.Kind {
	case recordedit.Instance:
		return e.Change == recordedit.Delete
	case recordedit.Leader:
		return e.Change == recordedit.RollBack || e.Change == recordedit.Invalid // which name another session
	case recordedit.Member, recordedit.Claims:
		return true
	}
	return false
}

// isUnreadable reports whether the written value does not decode as the record of its key.
func (e *edit) isUnreadable() bool { return e.IsUnreadable([]byte(e.value)) }

// mayStayUnread reports whether possibly no process reads the record: joining processes read that of
// the namespace, and no process reads the claims of a member that owns no shard of the job.
func (e *edit) mayStayUnread() bool { return e.Kind == recordedit.Meta || e.Kind == recordedit.Claims }

// editedFleet is a running simulation of record edits.
type editedFleet struct {
	*fleet
	editChecks
	rounds     int
	onlyKind   recordedit.Kind   // "" for all
	onlyChange recordedit.Change // "" for all
	editor     *memory.Client
	keys       record.Keys
	history    map[registry.Key][]string // values, oldest first
	log        *warningLog
	report     *EditsReport
	crashes    int // of the round
}

// RunEdits simulates a fleet whose records are edited. It has to be called in a synctest bubble, in which
// it leaves no goroutine. The error is the first violation of an invariant, with the steps before it, or
// the reason why the simulation could not run.
func RunEdits(c EditsConfig) (*EditsReport, error) {
	log := &warningLog{next: c.Logger}
	c.Logger = slog.New(log)
	keys, err := record.NewKeys(namespace, "default")
	if err != nil {
		return nil, err
	}
	f := newFleet(c.Config)
	h := &editedFleet{
		fleet: f, editChecks: newEditChecks(), rounds: c.Rounds, onlyKind: c.Kind, onlyChange: c.Change, editor: f.server.Client("editor"), keys: keys,
		history: map[registry.Key][]string{}, log: log, report: &EditsReport{Seed: c.Seed, Rows: map[string]*EditsRow{}},
	}
	err = h.run()
	if err == nil {
		err = h.violations()
	}
	if err != nil {
		err = fmt.Errorf("seed %d: %w\n%s", c.Seed, err, strings.Join(h.report.Steps, "\n"))
	}
	return h.report, err
}

func (h *editedFleet) run() error {
	h.until = time.Now().Add(1000 * time.Hour)
	if err := h.openConsole(); err != nil {
		return err
	}
	for i, s := range h.specs {
		s.misfire = []executor.MisfirePolicy{executor.RunOnce, executor.RunAll(1000), executor.RunAll(3), executor.SkipMissed}[(i+int(h.Seed))%4]
		s.crash = executor.RerunElsewhere
	}
	for i := range h.Instances {
		s := &slot{number: i}
		h.slots = append(h.slots, s)
		if err := h.fillSlot(s); err != nil {
			return err
		}
	}
	err := h.runRounds()
	return errors.Join(err, h.endAll())
}

func (h *editedFleet) runRounds() error {
	if err := h.makeHistory(); err != nil {
		return err
	}
	for range h.rounds {
		if err := h.runRound(); err != nil {
			return err
		}
	}
	return nil
}

// makeHistory writes second revisions of the definitions, and the records of operators.
func (h *editedFleet) makeHistory() error {
	if _, err := h.awaitWhole(time.Now(), healsWithin); err != nil {
		return err
	}
	for _, spec := range h.specs {
		spec.revision++
		for _, s := range h.slots {
			if err := s.process.executor.Register(spec.withHandlerOf(s.process)); err != nil {
				return err
			}
		}
	}
	return h.operateAll()
}

// operateAll writes each record of operators several times. No value pauses a job: a pause that is rolled
// back to would stay.
func (h *editedFleet) operateAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, spec := range h.specs {
		_, err := h.operator.Trigger(ctx, spec.name, "", nil)
		one := operator.Scope{Job: spec.name, Instances: []string{"no-instance"}}
		errs = append(errs, err, h.operator.Disable(ctx, one), h.operator.Enable(ctx, one))
	}
	scope := operator.Scope{Instances: []string{"no-instance"}}
	errs = append(errs, h.operator.Disable(ctx, scope), h.operator.Enable(ctx, scope))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("operate: %w", err)
	}
	_, err := h.awaitWhole(time.Now(), healsWithin)
	return err
}

// runRound edits one record or two and requires that the fleet becomes whole again.
func (h *editedFleet) runRound() error {
	if h.rng.IntN(3) == 0 {
		if err := h.operateAll(); err != nil {
			return err
		}
	}
	if err := h.passTime(h.drawDelay()); err != nil {
		return err
	}
	h.beginRound()
	defer func() { h.edits, h.crashes, h.calmFrom = nil, 0, time.Time{} }()
	if err := h.makeEdits(); err != nil {
		return err
	}
	last := h.edits[len(h.edits)-1].at
	took, err := h.awaitWhole(last, healsWithin+h.Every)
	outcome := fmt.Sprintf("healed in %v", took)
	if err != nil {
		named, rerr := h.restoreNamed(err)
		if rerr != nil {
			return rerr
		}
		outcome = fmt.Sprintf("restored %v", named)
		if took, err = h.awaitWhole(time.Now(), healsWithin+h.Every); err != nil {
			return fmt.Errorf("after restoring: %w", err)
		}
		outcome += fmt.Sprintf(", healed in %v", took)
	} else {
		h.countHealed(took)
	}
	h.logStep("  %s", outcome)
	if err := h.requirePlansRestored(); err != nil {
		return err
	}
	return h.requireCalm()
}

// countHealed counts the edits of a round after which the fleet became whole by itself.
func (h *editedFleet) countHealed(took time.Duration) {
	for _, one := range h.edits {
		if e, ok := h.readFresh(one.Key); ok && string(e.Value) == one.value && one.mayStayUnread() && one.isUnreadable() && !h.log.names(one.Key, one.at) {
			h.report.rowOf(one).Unread++
		} else {
			h.report.rowOf(one).addHealed(took)
		}
	}
}

// beginRound resets the counts of a round.
func (h *editedFleet) beginRound() {
	h.since, h.before = time.Now(), h.countCosts()
}

// drawDelay draws how long to wait before an edit: half of the edits come during runs.
func (h *editedFleet) drawDelay() time.Duration {
	d := time.Duration(h.rng.Int64N(int64(h.Every)))
	if h.rng.IntN(2) == 0 {
		next := time.Now().Truncate(h.Every).Add(h.Every)
		return time.Until(next) + time.Duration(h.rng.Int64N(int64(h.Takes)))
	}
	return d
}

// makeEdits makes the edits of a round: every other time two, at one instant or within a second. Every
// fourth time an instance crashes as well.
func (h *editedFleet) makeEdits() error {
	crash := -1
	n := 1 + h.rng.IntN(2)
	if h.rng.IntN(4) == 0 {
		crash = h.rng.IntN(n + 1)
	}
	for i := range n + 1 {
		if crash == i {
			h.crashOne()
		}
		if i == n {
			return nil
		}
		if i > 0 && h.rng.IntN(2) == 0 {
			if err := h.passTime(time.Duration(h.rng.Int64N(int64(time.Second)))); err != nil {
				return err
			}
		}
		for try := 0; ; try++ {
			one, err := h.makeEdit()
			if err != nil {
				return err
			}
			if one != nil {
				h.edits = append(h.edits, one)
				h.logStep("%v", one)
				break
			}
			if try == 1000 {
				return errors.New("no record can be edited")
			}
		}
	}
	return nil
}

// crashOne crashes an instance, the leader as often as all others together.
func (h *editedFleet) crashOne() {
	s := h.slots[h.rng.IntN(len(h.slots))]
	if h.rng.IntN(2) == 0 {
		s = h.leaderSlot(s)
	}
	h.crashes++
	if s.process == nil {
		return
	}
	h.logStep("%s %s crashes", time.Now().UTC().Format("15:04:05.000"), s.process.clientName)
	s.process.crash()
	h.emptySlot(s, time.Duration(h.rng.Int64N(int64(2*h.TTL))))
}

// leaderSlot returns the slot of the leader, or other if there is none.
func (h *editedFleet) leaderSlot(other *slot) *slot {
	e, ok := h.readFresh(h.keys.Leader())
	if !ok {
		return other
	}
	leader, err := record.Decode[record.Leader](e.Value)
	if err != nil {
		return other
	}
	for _, s := range h.slots {
		if s.process != nil && strings.HasPrefix(leader.Incarnation, s.process.instance+".") {
			return s
		}
	}
	return other
}

func (h *editedFleet) readFresh(key registry.Key) (registry.Entry, bool) {
	e, err := h.editor.Get(context.Background(), key, registry.ReadOptions{Fresh: true})
	return e, err == nil
}

// makeEdit edits a record. It returns nil if the drawn kind has no record, or the record no older value.
func (h *editedFleet) makeEdit() (*edit, error) {
	one := &edit{Edit: recordedit.Edit{
		Kind:   recordedit.Kinds[h.rng.IntN(len(recordedit.Kinds))],
		Change: recordedit.Changes[h.rng.IntN(len(recordedit.Changes))],
	}}
	if h.onlyKind != "" && h.onlyKind != one.Kind || h.onlyChange != "" && h.onlyChange != one.Change {
		return nil, nil
	}
	h.drainLogs()
	h.drawKey(one)
	e, ok := h.readFresh(one.Key)
	if !ok || slices.ContainsFunc(h.edits, func(o *edit) bool { return o.Key == one.Key }) {
		return nil, nil
	}
	op, ok := one.Op(e, h.history[one.Key], h.rng.IntN)
	if !ok {
		return nil, nil
	}
	one.previous, one.value = string(e.Value), string(op.Value)
	one.at = time.Now()
	_, err := h.editor.Txn(context.Background(), registry.Txn{Then: []registry.Op{op}})
	h.report.rowOf(one).Edits++
	if one.SeparatesRuns() {
		h.lost[one.Job] = true
	}
	return one, err
}

// drawKey draws the key of an edit; every third time it is one of the leader's own records. The key
// stays empty if the drawn slot has no instance.
func (h *editedFleet) drawKey(one *edit) {
	job := h.specs[h.rng.IntN(len(h.specs))].name
	s := h.slots[h.rng.IntN(len(h.slots))]
	if h.rng.IntN(3) == 0 {
		s = h.leaderSlot(s)
	}
	if !one.Kind.OfIncarnation() {
		one.SetKey(h.keys, job, "")
		return
	}
	if s.process == nil {
		return
	}
	if e, ok := h.readFresh(h.keys.Instance(s.process.instance)); ok {
		one.SetKey(h.keys, job, record.Incarnation(s.process.instance, e.Owner))
	}
}

// restoreNamed restores or deletes the records that the fleet left as they were edited, as an operator does
// who finds their keys in a log. A log has to name each of them.
func (h *editedFleet) restoreNamed(defect error) (named []string, err error) {
	for _, one := range h.edits {
		e, ok := h.readFresh(one.Key)
		if stays := ok && string(e.Value) == one.value; !stays || !one.isUnreadable() {
			h.report.rowOf(one).addHealed(time.Since(one.at))
			continue
		}
		if !h.log.names(one.Key, one.at) {
			if one.mayStayUnread() {
				h.report.rowOf(one).Unread++
				continue
			}
			return nil, fmt.Errorf("%w; no log names %s", defect, one.Key)
		}
		named = append(named, string(one.Key))
		h.report.rowOf(one).Named++
		op := registry.Delete(one.Key, e.Modified)
		if values := h.history[one.Key]; len(values) > 0 && one.Kind != recordedit.Claims && (h.rng.IntN(2) == 0 || one.Kind == recordedit.Job && !h.hasPlan(one.Job)) {
			op = registry.Set(one.Key, e.Modified, []byte(values[len(values)-1]))
		}
		h.logStep("  %s restores: %v", clockText(time.Now()), op)
		if _, err := h.editor.Txn(context.Background(), registry.Txn{Then: []registry.Op{op}}); err != nil {
			return nil, err
		}
	}
	if len(named) == 0 {
		return nil, fmt.Errorf("%w; no log names a key", defect)
	}
	return named, nil
}

// hasPlan reports whether a job has a plan. A job without plan and definition returns only when a process
// joins.
func (h *editedFleet) hasPlan(job string) bool {
	_, ok := h.readFresh(h.keys.Plan(job))
	return ok
}

// restoreUnread restores the records that no process has read. A process that joins in a later round would create
// the record of the namespace with another ID, and the others would join again.
func (h *editedFleet) restoreUnread() error {
	for _, one := range h.edits {
		e, ok := h.readFresh(one.Key)
		if !ok && one.Kind == recordedit.Meta {
			op := registry.Create(one.Key, []byte(h.lastMeta()))
			if _, err := h.editor.Txn(context.Background(), registry.Txn{Then: []registry.Op{op}}); err != nil {
				return err
			}
			continue
		}
		if !ok || string(e.Value) != one.value || !one.mayStayUnread() || !one.isUnreadable() && one.Kind != recordedit.Meta {
			continue
		}
		op := registry.Delete(one.Key, e.Modified)
		if one.Kind == recordedit.Meta {
			op = registry.Set(one.Key, e.Modified, []byte(h.lastMeta()))
		}
		if _, err := h.editor.Txn(context.Background(), registry.Txn{Then: []registry.Op{op}}); err != nil {
			return err
		}
	}
	return nil
}

// lastMeta returns the record of the namespace as a process wrote it last.
func (h *editedFleet) lastMeta() string {
	values := h.history[h.keys.Meta()]
	return values[len(values)-1]
}

// passTime lets time pass, and judges what happens meanwhile.
func (h *editedFleet) passTime(d time.Duration) error {
	for until := time.Now().Add(d); time.Now().Before(until); {
		if err := h.advance(time.Now().Add(min(time.Second, time.Until(until)))); err != nil {
			return err
		}
		h.drainLogs()
		if err := h.closeEnded(); err != nil {
			return err
		}
		if err := h.violations(); err != nil {
			return err
		}
	}
	return nil
}

// drainLogs judges the new commits of the store and the new calls.
func (h *editedFleet) drainLogs() {
	log, calls := h.server.Log(), h.fleet.calls.drain()
	if h.Transcript != nil {
		writeTranscript(h.Transcript, log, calls)
	}
	for _, c := range log {
		if c.Client == "editor" || c.Err != nil {
			continue
		}
		for _, op := range c.Then {
			if len(op.Value) == 0 {
				continue
			}
			values := append(h.history[op.Key], string(op.Value))
			h.history[op.Key] = values[max(0, len(values)-8):]
		}
	}
	for _, e := range calls {
		h.judgeCall(e)
	}
}

// closeEnded closes the clients of processes that have ended. It fails if a process ended that was not stopped,
// except one that could not join because of the record of the namespace and names it: that starts again.
func (h *editedFleet) closeEnded() error {
	rest := h.processes[:0]
	for _, p := range h.processes {
		if !p.hasEnded() {
			rest = append(rest, p)
			continue
		}
		if p.stopped.IsZero() && !strings.Contains(fmt.Sprint(p.err), string(h.keys.Meta())) {
			return fmt.Errorf("%s ended: %w", p.clientName, p.err)
		}
		p.client.Close(context.Background())
		for _, s := range h.slots {
			if s.process == p && p.stopped.IsZero() {
				h.logStep("  %s did not start: %v", p.clientName, p.err)
				h.log.add(fmt.Sprintf("level=ERROR %v", p.err)) // a process prints the reason of its end
				h.emptySlot(s, 10*time.Second)
			}
		}
	}
	h.processes = rest
	return nil
}

// endAll shuts all processes down.
func (h *editedFleet) endAll() error {
	for _, p := range h.processes {
		if p.stopped.IsZero() {
			p.leave()
		}
	}
	for _, p := range h.processes {
		<-p.done
	}
	time.Sleep(stubborn)
	var errs []error
	for _, p := range h.processes {
		if err := p.client.Close(context.Background()); err != nil && !p.didCrash {
			errs = append(errs, fmt.Errorf("close %s: %w", p.clientName, err))
		}
	}
	errs = append(errs, h.console.Close(context.Background()), h.editor.Close(context.Background()))
	h.drainLogs()
	return errors.Join(errs...)
}

// logStep adds a line to the steps that are printed with a violation.
func (h *editedFleet) logStep(format string, args ...any) {
	h.report.Steps = append(h.report.Steps, fmt.Sprintf(format, args...))
}
