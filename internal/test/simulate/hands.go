package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// A simulation of hands changes records behind the fleet's back: docs/protocol/record-edits.md states what follows.
// Package judge cannot keep its books across a plan that was rolled back, so these simulations have
// weaker checks of their own, in hands_checks.go.

// handKinds are the kinds of records, and handActs the changes of them.
var (
	handKinds = []string{"meta", "instance", "leader", "present", "member", "job", "control", "group control", "plan", "claims"}
	handActs  = []string{"delete", "garbage", "absurd", "roll back"}
)

const garbage = "garbage {"

// absurd is JSON that decodes as each kind of record as far as types go, and whose values no record
// has.
const absurd = `{"format":-7,"fence_base":0,"incarnation":"nobody.nothing","session":"nothing","name":"","job":"","jobs":["",""],` +
	`"shards":-3,"revision":-9,"owners":{"":"0-9999"},"epochs":[],"weight":-5,"successors":["","."],"triggers":[{"number":0}],"last_trigger":0}`

// healsWithin bounds the time from the last act, or its mend, to a fleet that is whole, besides the
// time between two fires.
const healsWithin = time.Minute

// HandsConfig configures a simulation of hands.
type HandsConfig struct {
	Config        // Faults, For and Kinds are not used
	Rounds int    // each changes a record or two
	Kind   string // of all records that are changed; "" for all kinds
	Act    string // on all of them; "" for all acts
}

// hand is one change of a record.
type hand struct {
	kind, act string
	key       registry.Key
	job       string // that the record is about; "" for all or none
	at        time.Time
	value     string // the value that was written; "" if the record was deleted
	was       string // the value before
}

func (h *hand) String() string {
	return fmt.Sprintf("%s %s %s", h.at.UTC().Format("15:04:05.000"), h.act, h.key)
}

// costsSession reports whether an instance has to join again because of the change.
func (h *hand) costsSession() bool {
	switch h.kind {
	case "instance":
		return h.act == "delete"
	case "leader":
		return h.act == "roll back" || h.act == "absurd" // which names another
	case "member", "claims":
		return true
	}
	return false
}

// unreadable reports whether the value that the hand wrote does not decode as the record of its key. Nothing
// rests on the values of the kinds that are not here.
func (h *hand) unreadable() bool {
	value, about, err := []byte(h.value), h.job, error(nil)
	switch {
	case h.act != "garbage" && h.act != "absurd":
		return false
	case h.kind == "meta":
		_, err = record.DecodeMeta(value)
	case h.kind == "job":
		_, _, err = record.DecodeDefinition(value)
	case h.kind == "group control":
		_, err = record.DecodeGroupControl(value)
	case h.kind == "plan":
		_, err = record.DecodePlan(value)
	case h.kind == "control":
		var c *record.Control
		if c, err = record.DecodeControl(value); err == nil {
			about = c.Job
		}
	case h.kind == "claims":
		var c record.Claims
		c, err = record.Decode[record.Claims](value)
		about = c.Job
	}
	return err != nil || about != h.job
}

// mayRestUnread reports whether it may be that no process reads the record: that of the namespace is read by
// processes that join, and the claims of a member that owns no shard of the job by none.
func (h *hand) mayRestUnread() bool { return h.kind == "meta" || h.kind == "claims" }

// hands is a simulation under way.
type hands struct {
	*fleet
	handsChecks
	rounds  int
	only    [2]string // kind and act; "" for all
	hand    *memory.Client
	keys    record.Keys
	history map[registry.Key][]string // values, oldest first
	log     *handsLog
	report  *HandsReport
	crashes int // of the round
}

// RunHands simulates a fleet whose records are changed by hand. It is to be called in a synctest
// bubble, in which it leaves no goroutine. The error is the first violation of an invariant, with the
// acts before it, or the reason why there is no simulation.
func RunHands(c HandsConfig) (*HandsReport, error) {
	log := &handsLog{next: c.Logger}
	c.Logger = slog.New(log)
	keys, err := record.NewKeys(namespace, "default")
	if err != nil {
		return nil, err
	}
	f := newFleet(c.Config)
	h := &hands{
		fleet: f, handsChecks: newHandsChecks(), rounds: c.Rounds, only: [2]string{c.Kind, c.Act}, hand: f.server.Client("hand"), keys: keys,
		history: map[registry.Key][]string{}, log: log, report: &HandsReport{Seed: c.Seed, Rows: map[string]*HandsRow{}},
	}
	err = h.run()
	if err == nil {
		err = h.broken()
	}
	if err != nil {
		err = fmt.Errorf("seed %d: %w\n%s", c.Seed, err, strings.Join(h.report.Story, "\n"))
	}
	return h.report, err
}

func (h *hands) run() error {
	h.until = time.Now().Add(1000 * time.Hour)
	if err := h.open(); err != nil {
		return err
	}
	for i, s := range h.specs {
		s.misfire = []executor.MisfirePolicy{executor.RunOnce, executor.RunAll(1000), executor.RunAll(3), executor.SkipMissed}[(i+int(h.Seed))%4]
		s.crash = executor.RerunElsewhere
	}
	for i := range h.Instances {
		s := &slot{number: i}
		h.slots = append(h.slots, s)
		if err := h.fill(s); err != nil {
			return err
		}
	}
	err := h.play()
	return errors.Join(err, h.end())
}

func (h *hands) play() error {
	if err := h.makeHistory(); err != nil {
		return err
	}
	for range h.rounds {
		if err := h.round(); err != nil {
			return err
		}
	}
	return nil
}

// makeHistory makes the records of operators, and second revisions of the definitions.
func (h *hands) makeHistory() error {
	if _, err := h.heals(time.Now(), healsWithin); err != nil {
		return err
	}
	for _, spec := range h.specs {
		spec.revision++
		for _, s := range h.slots {
			if err := s.process.ex.Register(spec.job(s.process)); err != nil {
				return err
			}
		}
	}
	return h.operateAll()
}

// operateAll leaves older values of all records of operators. None of them pauses a job: a pause would
// hold when it is written again.
func (h *hands) operateAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, spec := range h.specs {
		_, err := h.operator.Trigger(ctx, spec.name, "", nil)
		one := coordinator.Scope{Job: spec.name, Instances: []string{"somebody"}}
		errs = append(errs, err, h.operator.Disable(ctx, one), h.operator.Enable(ctx, one))
	}
	scope := coordinator.Scope{Instances: []string{"somebody"}}
	errs = append(errs, h.operator.Disable(ctx, scope), h.operator.Enable(ctx, scope))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("operate: %w", err)
	}
	_, err := h.heals(time.Now(), healsWithin)
	return err
}

// round changes one record or two and requires that the fleet heals.
func (h *hands) round() error {
	if h.rng.IntN(3) == 0 {
		if err := h.operateAll(); err != nil {
			return err
		}
	}
	if err := h.pass(h.untilAct()); err != nil {
		return err
	}
	h.openRound()
	defer func() { h.struck, h.crashes, h.calmFrom = nil, 0, time.Time{} }()
	if err := h.strikeAll(); err != nil {
		return err
	}
	last := h.struck[len(h.struck)-1].at
	took, err := h.heals(last, healsWithin+h.Every)
	outcome := fmt.Sprintf("healed in %v", took)
	if err != nil {
		named, merr := h.mendAll(err)
		if merr != nil {
			return merr
		}
		outcome = fmt.Sprintf("mended: %v", named)
		if took, err = h.heals(time.Now(), healsWithin+h.Every); err != nil {
			return fmt.Errorf("after a mend: %w", err)
		}
		outcome += fmt.Sprintf(", healed in %v", took)
	} else {
		h.countHealed(took)
	}
	h.tell("  %s", outcome)
	if err := h.requirePlansKept(); err != nil {
		return err
	}
	return h.calmDown()
}

// countHealed counts the acts of a round from which the fleet healed by itself.
func (h *hands) countHealed(took time.Duration) {
	for _, one := range h.struck {
		if e, ok := h.get(one.key); ok && string(e.Value) == one.value && one.mayRestUnread() && one.unreadable() && !h.log.names(one.key, one.at) {
			h.report.row(one).Unread++
		} else {
			h.report.row(one).healed(took)
		}
	}
}

// openRound starts the books of a round.
func (h *hands) openRound() {
	h.since, h.before = time.Now(), h.costs()
}

// untilAct draws how long to wait before an act: half of the acts come while runs last.
func (h *hands) untilAct() time.Duration {
	d := time.Duration(h.rng.Int64N(int64(h.Every)))
	if h.rng.IntN(2) == 0 {
		next := time.Now().Truncate(h.Every).Add(h.Every)
		return time.Until(next) + time.Duration(h.rng.Int64N(int64(h.Takes)))
	}
	return d
}

// strikeAll does the acts of a round: every other time two, within one instant or a second, and every
// fourth time together with the crash of an instance.
func (h *hands) strikeAll() error {
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
			if err := h.pass(time.Duration(h.rng.Int64N(int64(time.Second)))); err != nil {
				return err
			}
		}
		for try := 0; ; try++ {
			one, err := h.strikeOne()
			if err != nil {
				return err
			}
			if one != nil {
				h.struck = append(h.struck, one)
				h.tell("%v", one)
				break
			}
			if try == 1000 {
				return errors.New("no record can be changed")
			}
		}
	}
	return nil
}

// crashOne lets an instance crash, the leader as often as all others together.
func (h *hands) crashOne() {
	s := h.slots[h.rng.IntN(len(h.slots))]
	if h.rng.IntN(2) == 0 {
		s = h.leader(s)
	}
	h.crashes++
	if s.process == nil {
		return
	}
	h.tell("%s %s crashes", time.Now().UTC().Format("15:04:05.000"), s.process.machine)
	s.process.crash()
	h.vacate(s, time.Duration(h.rng.Int64N(int64(2*h.TTL))))
}

// leader returns the slot of the leader, other if there is none.
func (h *hands) leader(other *slot) *slot {
	e, ok := h.get(h.keys.Leader())
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

func (h *hands) get(key registry.Key) (registry.Entry, bool) {
	e, err := h.hand.Get(context.Background(), key, registry.ReadOptions{Fresh: true})
	return e, err == nil
}

// strikeOne changes a record. It returns nil if there is none of the kind that was drawn, or no older
// value of it.
func (h *hands) strikeOne() (*hand, error) {
	one := &hand{kind: handKinds[h.rng.IntN(len(handKinds))], act: handActs[h.rng.IntN(len(handActs))]}
	if only := h.only[0]; only != "" && only != one.kind {
		return nil, nil
	}
	if only := h.only[1]; only != "" && only != one.act {
		return nil, nil
	}
	h.hear()
	h.choose(one)
	e, ok := h.get(one.key)
	if !ok || slices.ContainsFunc(h.struck, func(o *hand) bool { return o.key == one.key }) {
		return nil, nil
	}
	one.was = string(e.Value)
	var op registry.Op
	switch one.act {
	case "delete":
		op = registry.Delete(one.key, e.Modified)
	case "garbage":
		one.value = garbage
	case "absurd":
		one.value = absurd
	default:
		older := slices.DeleteFunc(slices.Clone(h.history[one.key]), func(v string) bool { return v == string(e.Value) })
		if len(older) == 0 {
			return nil, nil
		}
		one.value = older[h.rng.IntN(len(older))]
	}
	if one.act != "delete" {
		op = registry.Set(one.key, e.Modified, []byte(one.value))
	}
	one.at = time.Now()
	_, err := h.hand.Txn(context.Background(), registry.Txn{Then: []registry.Op{op}})
	h.report.row(one).Acts++
	if one.kind == "plan" || one.kind == "claims" {
		h.lost[one.job] = true
	}
	return one, err
}

// choose chooses the record of a kind; every third time it is the leader's own.
func (h *hands) choose(one *hand) {
	job := h.specs[h.rng.IntN(len(h.specs))].name
	s := h.slots[h.rng.IntN(len(h.slots))]
	if h.rng.IntN(3) == 0 {
		s = h.leader(s)
	}
	switch one.kind {
	case "meta":
		one.key = h.keys.Meta()
	case "leader":
		one.key = h.keys.Leader()
	case "present":
		one.key = h.keys.Seat()
	case "job":
		one.key, one.job = h.keys.Job(job), job
	case "control":
		one.key, one.job = h.keys.Control(job), job
	case "group control":
		one.key = h.keys.GroupControl()
	case "plan":
		one.key, one.job = h.keys.Plan(job), job
	case "instance":
		if s.process != nil {
			one.key = h.keys.Instance(s.process.instance)
		}
	default:
		h.chooseOwn(one, s, job)
	}
}

// chooseOwn chooses a record of the incarnation in a slot.
func (h *hands) chooseOwn(one *hand, s *slot, job string) {
	if s.process == nil {
		return
	}
	e, ok := h.get(h.keys.Instance(s.process.instance))
	if !ok {
		return
	}
	inc := record.Incarnation(s.process.instance, e.Owner)
	one.key = h.keys.Member(inc)
	if one.kind == "claims" {
		one.key, one.job = h.keys.Claims(inc, job), job
	}
}

// mendAll does as an operator who finds the keys in a log: it restores the records that the fleet left as
// the hand wrote them. Each has to be named.
func (h *hands) mendAll(lacks error) (named []string, err error) {
	for _, one := range h.struck {
		e, ok := h.get(one.key)
		if stays := ok && string(e.Value) == one.value; !stays || !one.unreadable() {
			h.report.row(one).healed(time.Since(one.at))
			continue
		}
		if !h.log.names(one.key, one.at) {
			if one.mayRestUnread() {
				h.report.row(one).Unread++
				continue
			}
			return nil, fmt.Errorf("%w; no log names %s", lacks, one.key)
		}
		named = append(named, string(one.key))
		h.report.row(one).Named++
		op := registry.Delete(one.key, e.Modified)
		if values := h.history[one.key]; len(values) > 0 && one.kind != "claims" && (h.rng.IntN(2) == 0 || one.kind == "job" && !h.planned(one.job)) {
			op = registry.Set(one.key, e.Modified, []byte(values[len(values)-1]))
		}
		h.tell("  %s mend: %v", clockText(time.Now()), op)
		if _, err := h.hand.Txn(context.Background(), registry.Txn{Then: []registry.Op{op}}); err != nil {
			return nil, err
		}
	}
	if len(named) == 0 {
		return nil, fmt.Errorf("%w; no log names a key", lacks)
	}
	return named, nil
}

// planned reports whether there is a plan of a job. Without plan and definition a job stays away until a
// process joins.
func (h *hands) planned(job string) bool {
	_, ok := h.get(h.keys.Plan(job))
	return ok
}

// restoreUnread restores the records that no process has read yet.
func (h *hands) restoreUnread() error {
	for _, one := range h.struck {
		e, ok := h.get(one.key)
		if !ok || string(e.Value) != one.value || !one.mayRestUnread() || !one.unreadable() && one.kind != "meta" {
			continue
		}
		op := registry.Delete(one.key, e.Modified)
		if one.kind == "meta" {
			op = registry.Set(one.key, e.Modified, []byte(h.history[one.key][0]))
		}
		if _, err := h.hand.Txn(context.Background(), registry.Txn{Then: []registry.Op{op}}); err != nil {
			return err
		}
	}
	return nil
}

// pass lets time pass.
func (h *hands) pass(d time.Duration) error {
	for until := time.Now().Add(d); time.Now().Before(until); {
		if err := h.advance(time.Now().Add(min(time.Second, time.Until(until)))); err != nil {
			return err
		}
		h.hear()
		if err := h.reapAll(); err != nil {
			return err
		}
		if err := h.broken(); err != nil {
			return err
		}
	}
	return nil
}

// hear drains the logs of the store and of the runs.
func (h *hands) hear() {
	log, calls := h.server.Log(), h.functions.take()
	if h.Transcript != nil {
		transcribe(h.Transcript, log, calls)
	}
	for _, c := range log {
		if c.Client == "hand" || c.Err != nil {
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

// reapAll closes processes that are over, and fails if one ended that was not to: but one that starts
// may fail because of the record of the namespace, if it names that; then it starts again later.
func (h *hands) reapAll() error {
	rest := h.processes[:0]
	for _, p := range h.processes {
		if !p.over() {
			rest = append(rest, p)
			continue
		}
		if p.told.IsZero() && !strings.Contains(fmt.Sprint(p.err), string(h.keys.Meta())) {
			return fmt.Errorf("%s gave up: %w", p.machine, p.err)
		}
		p.client.Close(context.Background())
		for _, s := range h.slots {
			if s.process == p && p.told.IsZero() {
				h.tell("  %s did not start: %v", p.machine, p.err)
				h.log.add(fmt.Sprintf("level=ERROR %v", p.err)) // a process prints why it ends
				h.vacate(s, 10*time.Second)
			}
		}
	}
	h.processes = rest
	return nil
}

// end ends all processes.
func (h *hands) end() error {
	for _, p := range h.processes {
		if p.told.IsZero() {
			p.leave()
		}
	}
	for _, p := range h.processes {
		<-p.done
	}
	time.Sleep(stubborn)
	var errs []error
	for _, p := range h.processes {
		if err := p.client.Close(context.Background()); err != nil && !p.gone {
			errs = append(errs, fmt.Errorf("close %s: %w", p.machine, err))
		}
	}
	errs = append(errs, h.console.Close(context.Background()), h.hand.Close(context.Background()))
	h.hear()
	return errors.Join(errs...)
}

// tell adds a line to the story that a violation prints.
func (h *hands) tell(format string, args ...any) {
	h.report.Story = append(h.report.Story, fmt.Sprintf(format, args...))
}
