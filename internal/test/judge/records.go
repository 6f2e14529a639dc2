package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/registry"
)

// The types below follow the description of the records and do not use the code that writes them, so that
// a mistake in that code is found.

// instant is in nanoseconds since the Unix epoch; 0 for none.
type instant int64

func instantOf(t time.Time) instant { return instant(t.UnixNano()) }

func (i instant) time() time.Time { return time.Unix(0, int64(i)) }

func (i instant) add(d time.Duration) instant { return i + instant(d) }

func (i instant) String() string {
	if i == 0 {
		return "-"
	}
	return time.Unix(0, int64(i)).UTC().Format("15:04:05.000")
}

// UnmarshalJSON reads RFC 3339.
func (i *instant) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*i = 0
		return nil
	}
	if len(b) < 2 || b[0] != '"' {
		return fmt.Errorf("time %s is not a string", b)
	}
	t, err := time.Parse(time.RFC3339Nano, string(b[1:len(b)-1]))
	*i = instantOf(t)
	return err
}

// shards is a set of shard numbers below 64, which is enough for a simulation.
type shards uint64

func (s shards) has(n int) bool { return n < 64 && s&(1<<n) != 0 }

func (s shards) len() int { return bits.OnesCount64(uint64(s)) }

// all calls f with each number, in ascending order.
func (s shards) all(f func(n int)) {
	for ; s != 0; s &= s - 1 {
		f(bits.TrailingZeros64(uint64(s)))
	}
}

// firstShards returns the shards 0 to n-1.
func firstShards(n int) shards { return 1<<n - 1 }

// UnmarshalText reads ranges: "0-3,7".
func (s *shards) UnmarshalText(text []byte) error {
	*s = 0
	for item := range strings.SplitSeq(string(text), ",") {
		if item == "" {
			continue
		}
		from, to, isRange := strings.Cut(item, "-")
		if !isRange {
			to = from
		}
		lo, err := strconv.Atoi(from)
		if err != nil {
			return err
		}
		hi, err := strconv.Atoi(to)
		if err != nil {
			return err
		}
		if lo < 0 || hi < lo || hi > 62 {
			return fmt.Errorf("shards %q: out of range", text)
		}
		*s |= firstShards(hi+1) &^ firstShards(lo)
	}
	return nil
}

type leaderRecord struct {
	Incarnation string             `json:"incarnation"`
	Session     registry.SessionID `json:"session"`
}

type memberRecord struct {
	Name     string             `json:"name"`
	Session  registry.SessionID `json:"session"`
	Host     string             `json:"host"`
	Jobs     []string           `json:"jobs"`
	Kinds    map[string]int     `json:"kinds"` // revisions, by name
	Labels   map[string]string  `json:"labels"`
	Weight   int                `json:"weight"`
	Draining bool               `json:"draining"`
	Grace    grace              `json:"restart_grace"`
}

// grace is a member's restart grace.
type grace time.Duration

// UnmarshalText reads "1m30s".
func (g *grace) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*g = grace(d)
	return err
}

// controlRecord is the intent of operators for a job, or for all.
type controlRecord struct {
	Resets    int      `json:"resets"`
	Shards    shards   `json:"disabled_shards"`
	Instances []string `json:"disabled_instances"`
	Hosts     []string `json:"disabled_hosts"`

	Cancels   runs            `json:"cancels"`
	Backfills []backfill      `json:"backfills"`
	Override  json.RawMessage `json:"override"`

	Pools map[string]int `json:"pools"` // sizes; of all jobs only
}

// backfill is the request for runs of past fires.
type backfill struct {
	Number   uint64    `json:"number"`
	Parallel int       `json:"parallel"`
	Fires    []instant `json:"fires"` // that no plan has had yet
}

// disables reports whether a member is disabled.
func (c *controlRecord) disables(m *memberRecord) bool {
	return slices.Contains(c.Instances, m.Name) || m.Host != "" && slices.Contains(c.Hosts, m.Host)
}

type claimsRecord struct {
	Job        string           `json:"job"`
	Watermarks []watermarkGroup `json:"watermarks"`
	Running    runs             `json:"running"`
	Reruns     runs             `json:"reruns"` // of runs that it handed back
	Counts     tallies          `json:"counts"`
}

type watermarkGroup struct {
	Shards  shards  `json:"shards"`
	Epoch   int     `json:"epoch"`
	Fire    instant `json:"fire"`
	Attempt int     `json:"attempt"`

	Trigger        uint64 `json:"trigger"`
	TriggerAttempt int    `json:"trigger_attempt"`
}

// covers reports whether the watermark counts a run as claimed.
func (g *watermarkGroup) covers(r run) bool {
	if r.Trigger > 0 {
		return g.Trigger > r.Trigger || g.Trigger == r.Trigger && g.TriggerAttempt >= r.Attempt
	}
	return g.Epoch > r.Epoch || g.Epoch == r.Epoch && (g.Fire > r.Fire || g.Fire == r.Fire && g.Attempt >= r.Attempt)
}

type runGroup struct {
	Shards shards `json:"shards"`
	run
}

// runs maps shards to their runs.
type runs []runGroup

// of returns the run of a shard.
func (rs runs) of(shard int) (run, bool) {
	for i := range rs {
		if rs[i].Shards.has(shard) {
			return rs[i].run, true
		}
	}
	return run{}, false
}

// all calls f with each shard and its run.
func (rs runs) all(f func(n int, r run)) {
	for i := range rs {
		rs[i].Shards.all(func(n int) { f(n, rs[i].run) })
	}
}

// run names a run of a shard.
type run struct {
	Epoch   int     `json:"epoch"`
	Fire    instant `json:"fire"`
	Trigger uint64  `json:"trigger"`
	Attempt int     `json:"attempt"`
	Missed  bool    `json:"missed"`

	HandedBack int     `json:"handed_back"` // of the attempts before
	Retries    int     `json:"retries"`     // of the attempts before
	NotBefore  instant `json:"not_before"`  // if the attempt before failed
	RetryDelay string  `json:"retry_delay"`
}

// isRetryOf reports whether r is the attempt after one that failed.
func (r run) isRetryOf(failed run) bool {
	next := failed.next(false)
	next.Retries, next.NotBefore, next.RetryDelay = next.Retries+1, r.NotBefore, r.RetryDelay
	return r == next && r.NotBefore != 0
}

// crashAttempts returns the attempts that count towards the maximum.
func (r run) crashAttempts() int { return r.Attempt - r.HandedBack - r.Retries }

// next returns the attempt after one that was lost or handed back.
func (r run) next(handedBack bool) run {
	r.Attempt++
	r.NotBefore, r.RetryDelay = 0, ""
	if handedBack {
		r.HandedBack++
	}
	return r
}

func (r run) String() string {
	what := "fire " + r.Fire.String()
	if r.Trigger > 0 {
		what = fmt.Sprintf("trigger %d", r.Trigger)
	}
	return fmt.Sprintf("%s of epoch %d, attempt %d", what, r.Epoch, r.Attempt)
}

// work returns the fire or trigger of a run.
func (r run) work() work {
	if r.Trigger > 0 {
		return work{trigger: r.Trigger}
	}
	return work{fire: r.Fire}
}

type work struct {
	fire    instant
	trigger uint64
}

// life is a fire between two resets: after a reset the same fire counts as another. A trigger has one life. After an
// operator has forgotten the job, fires and triggers count as others.
type life struct {
	work
	resets int // of the job, and how often it was forgotten
}

func (j *jobState) life(r run) life {
	if e := j.epoch(r.Epoch); e != nil && r.Trigger == 0 {
		return life{r.work(), e.life}
	}
	return life{r.work(), j.firstLife}
}

// attempt is one attempt at a work.
type attempt struct {
	life
	number int
}

func (j *jobState) attempt(r run) attempt { return attempt{j.life(r), r.Attempt} }

// tallies are the counts in records.
type tallies struct {
	Claimed   int `json:"claimed"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Skipped   int `json:"skipped"`
	Lost      int `json:"lost"`
	Unknown   int `json:"unknown"`
	Retried   int `json:"retried"`
}

func (t tallies) minus(o tallies) tallies {
	return t.plus(tallies{-o.Claimed, -o.Succeeded, -o.Failed, -o.Skipped, -o.Lost, -o.Unknown, -o.Retried})
}

func (t tallies) plus(o tallies) tallies {
	return tallies{
		t.Claimed + o.Claimed, t.Succeeded + o.Succeeded, t.Failed + o.Failed,
		t.Skipped + o.Skipped, t.Lost + o.Lost, t.Unknown + o.Unknown, t.Retried + o.Retried,
	}
}

type planRecord struct {
	Job      string            `json:"job"`
	Life     string            `json:"life"` // of a defined job: the creation and the number of rests
	Paused   bool              `json:"paused"`
	Epochs   []epoch           `json:"epochs"`
	Owners   map[string]shards `json:"owners"`
	Frozen   shards            `json:"frozen"`
	Disabled shards            `json:"disabled"`
	Reruns   runs              `json:"reruns"`
	Triggers []trigger         `json:"triggers"`
	Counts   tallies           `json:"counts"`
	Problem  string            `json:"problem"`
	Resets   int               `json:"resets"`
	Fires    *firesRecord      `json:"fires"`
	Followed *followedRecord   `json:"followed"`
	Cancels  runs              `json:"cancels"`
}

// cancels reports whether the plan names the run of a shard as cancelled.
func (p *planRecord) cancels(n int, r run) bool {
	c, ok := p.Cancels.of(n)
	return ok && c.Epoch == r.Epoch && c.work() == r.work()
}

// last returns the newest epoch.
func (p *planRecord) last() *epoch { return &p.Epochs[len(p.Epochs)-1] }

// owner returns the owner of a shard, "" if it has none.
func (p *planRecord) owner(shard int) string {
	for inc, set := range p.Owners {
		if set.has(shard) {
			return inc
		}
	}
	return ""
}

type trigger struct {
	Number   uint64  `json:"number"`
	Epoch    int     `json:"epoch"`
	Shards   *shards `json:"shards"`
	At       instant `json:"at"`
	Fire     instant `json:"fire"`     // of its runs, if it is not At
	Reason   string  `json:"reason"`   // "retry" or "backfill"
	Backfill uint64  `json:"backfill"` // the number of its backfill
}

// fire returns the fire of the trigger's runs.
func (t *trigger) fire() instant { return cmp.Or(t.Fire, t.At) }

// epoch is a span of fires under one definition, from From to before Until.
type epoch struct {
	Number int        `json:"number"`
	From   instant    `json:"from"`
	Until  instant    `json:"until"` // 0: open
	Def    definition `json:"definition"`

	life  int           // the number of resets when it began
	seen  instant       // when a plan listed it first
	grown span          // the end before it was last postponed, and when that happened
	every time.Duration // between fires
	delay time.Duration // from the end of a run to the next fire of its shard; 0: fires are apart by every
	at    []instant     // all fires; nil: one of the above
	err   error         // set if the schedule is not one that is simulated

	Released []release  `json:"released"`
	released *[]release // all of the job; nil unless the definition follows other jobs
}

// countAsFailed is the value of OnCrash of jobs without re-runs.
const countAsFailed = "count as failed"

type definition struct {
	Revision    int    `json:"revision"`
	Shards      int    `json:"shards"`
	Schedule    string `json:"schedule"`
	OnCrash     string `json:"on_crash"`
	OnMisfire   string `json:"on_misfire"`
	MaxAttempts int    `json:"max_attempts"`
	Tracking    string `json:"tracking"`
	OnOverlap   string `json:"on_overlap"`
	Pool        string `json:"pool"`

	CatchupWindow grace `json:"catchup_window"`

	Retry struct {
		Max int `json:"max"`
	} `json:"retry"`

	RunOn map[string]string `json:"run_on"`

	Kind         string `json:"kind"` // empty: a process has registered the job
	KindRevision int    `json:"kind_revision"`
	Created      string `json:"created"`
}

// acceptsLabels reports whether a member has the labels, and the kind, that the definition wants.
func (d *definition) acceptsLabels(m *memberRecord) bool {
	if d.Kind != "" && !d.isOfKindOf(m) {
		return false
	}
	for key, value := range d.RunOn {
		if has, ok := m.Labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// isOfKindOf reports whether a member has the kind of a defined job, in a sufficient revision.
func (d *definition) isOfKindOf(m *memberRecord) bool {
	revision, ok := m.Kinds[d.Kind]
	return ok && revision >= d.KindRevision
}

// endsUntracked reports whether ends of runs are recorded late: with the next claim, or when they are waited for.
func (d *definition) endsUntracked() bool { return d.Tracking == "claims" }

// setFires sets the fires of an epoch by its schedule, of the kinds that are simulated: "every D", "fixed delay D", "at T, ..." and
// "cron */N * * * *" with a divisor N of 60, which is as "every Nm".
func (e *epoch) setFires() {
	word, text, _ := strings.Cut(strings.TrimPrefix(e.Def.Schedule, "fixed "), " ")
	switch word {
	case "every":
		e.every, e.err = time.ParseDuration(text)
	case "delay":
		e.delay, e.err = time.ParseDuration(text)
	case "cron":
		text, _, _ = strings.Cut(strings.TrimPrefix(text, "*/"), " ")
		e.every, e.err = time.ParseDuration(text + "m")
	case "at":
		for item := range strings.SplitSeq(text, ", ") {
			at, err := time.Parse(time.RFC3339Nano, item)
			if err != nil {
				e.err = err
			}
			e.at = append(e.at, instantOf(at))
		}
	default:
		e.err = fmt.Errorf("schedule %q is not simulated", e.Def.Schedule)
	}
}

// limit returns n of the misfire policy "run all n", 1 for the others.
func (d *definition) limit() int {
	if text, ok := strings.CutPrefix(d.OnMisfire, "run all "); ok {
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
	}
	return 1
}

// fires returns how many fires of the epoch are after one instant and not after another.
func (e *epoch) fires(after, through instant) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	if e.released != nil {
		due := 0
		for _, r := range *e.released {
			if r.epoch == e.Number && r.At > after && r.At <= through {
				due++
			}
		}
		return due, nil
	}
	after = max(after, e.From-1)
	if e.Until != 0 {
		through = min(through, e.Until-1)
	}
	if through <= after || e.delay > 0 && after.add(e.delay) > through {
		return 0, nil
	}
	switch {
	case e.delay > 0:
		return 1, nil
	case e.at != nil:
		due := 0
		for _, at := range e.at {
			if at > after && at <= through {
				due++
			}
		}
		return due, nil
	}
	return int(through/instant(e.every) - after/instant(e.every)), nil // both are after the Unix epoch
}

func decode[T any](b []byte) (*T, error) {
	if strings.HasPrefix(string(b[:min(len(b), 8)]), "deflate\n") {
		return nil, fmt.Errorf("deflated records are not simulated")
	}
	v := new(T)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, err
	}
	return v, nil
}
