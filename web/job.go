package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// shardRows bounds the rows of a job's shards. Shards that are alike share one.
const shardRows = 200

// jobBody is the page of a job.
type jobBody struct {
	Job, Why   string
	State      string
	Text       string
	Sections   []section
	Shards     section
	MoreShards int
	Acts       []actLink
}

// actLink leads to the form of an act.
type actLink struct{ Name, Short, Link string }

func (c *Console) showJob(w http.ResponseWriter, r *request) error {
	st, err := c.status(r, r.PathValue("job"))
	if err != nil {
		return err
	}
	now := time.Now()
	summary := view.JobsOf(operator.GroupStatus{At: now, Jobs: []operator.JobSummary{st.Summary()}}, view.JobsFilter{}).Jobs[0]
	var group operator.Intent
	if st.GroupPaused {
		if group, err = c.intent(r, ""); err != nil {
			return err
		}
	}
	here := url.PathEscape(st.Job) + "/" // relative to this page
	b := jobBody{Job: st.Job, State: summary.State, Text: summary.Text, Why: here + "explain"}
	detail := view.JobDetailOf(*st, group, nextFires(st, 5), now)
	links := linkColumns(rootOf(r))
	b.Sections = screenOf(detail.Screen, c.times(r), links)
	shards := screenOf(view.ShardsOf(*st, "", now).Screen, c.times(r), links)
	if len(shards) > 0 {
		b.Shards = shards[0]
		b.MoreShards = max(0, len(b.Shards.Rows)-shardRows)
		b.Shards.Rows = b.Shards.Rows[:len(b.Shards.Rows)-b.MoreShards]
		for i := range b.Shards.Rows {
			row := &b.Shards.Rows[i]
			row.ID = "shards-" + row.Cells[0].Text
			row.Cells[0].Link = here + "explain?shard=" + strings.SplitN(row.Cells[0].Text, "-", 2)[0]
		}
	}
	b.Acts = c.actLinks(r, acts.OnJob, here+"act/")
	c.render(w, r, http.StatusOK, "job", page{Title: st.Job, Group: c.group(), Body: b})
	return nil
}

// status returns the state of a job, without the texts of errors unless the user may see them.
func (c *Console) status(r *request, job string) (*operator.Status, error) {
	st, err := c.statuses.get(job, func() (*operator.Status, error) {
		ctx, cancel := callAlone()
		defer cancel()
		st, err := c.op.Status(ctx, job)
		return &st, err
	})
	if err != nil || r.user.Role >= Reveal {
		return st, err
	}
	hidden := *st
	hidden.Failures = slices.Clone(st.Failures)
	for i := range hidden.Failures {
		hidden.Failures[i].Error = hiddenError
	}
	return &hidden, nil
}

// hiddenError replaces errors for users who may not see them.
const hiddenError = "(errors need the role reveal)"

func (c *Console) intent(r *request, job string) (operator.Intent, error) {
	ctx, cancel := call(r)
	defer cancel()
	return c.op.Intent(ctx, job)
}

// nextFires returns the next fires of a job: none while it is paused or its schedule is stopped.
func nextFires(st *operator.Status, n int) []time.Time {
	if st.NextFire.IsZero() {
		return nil
	}
	s, err := schedule.Parse(st.Schedule)
	if err != nil {
		return nil
	}
	fires, err := s.Next(time.Now(), n)
	if err != nil {
		return nil
	}
	return fires
}

// explanationBody is the page that answers why a fire has run or has not.
type explanationBody struct {
	Job       string
	Shard, At string
	Answers   []answer
}

// answer is an answer with the act that helps.
type answer struct {
	view.Answer
	Shards  string
	Act     string // the address of its form
	ActName string
}

func (c *Console) showExplanation(w http.ResponseWriter, r *request) error {
	b := explanationBody{Job: r.PathValue("job"), Shard: r.URL.Query().Get("shard"), At: r.URL.Query().Get("at")}
	shard := operator.AllShards
	if b.Shard != "" {
		n, err := strconv.Atoi(b.Shard)
		if err != nil || n < 0 {
			return problemf(http.StatusBadRequest, "The shard is %q, not a number.", b.Shard)
		}
		shard = n
	}
	fire, err := instantOf(b.At)
	if err != nil {
		return problemf(http.StatusBadRequest, "The instant is %q; write it as 2026-01-31T03:00:00Z.", b.At)
	}
	ctx, cancel := call(r)
	defer cancel()
	e, err := c.op.Explain(ctx, b.Job, shard, fire)
	if err != nil {
		return err
	}
	if !e.Known {
		return operator.ErrUnknownJob
	}
	if r.user.Role < Reveal {
		if err := c.hideErrors(r, &e); err != nil {
			return err
		}
	}
	for _, a := range view.ExplanationOf(e, view.UnnamedHistory).Answers {
		found := answer{Answer: a, Shards: view.ShardsText(a.Shards)}
		found.Act, found.ActName = c.actOf(r, &a)
		b.Answers = append(b.Answers, found)
	}
	c.render(w, r, http.StatusOK, "explain", page{Title: "Why: " + b.Job, Group: c.group(), Body: b})
	return nil
}

// hideErrors replaces the errors of runs in the texts of an explanation.
func (c *Console) hideErrors(r *request, e *operator.Explanation) error {
	ctx, cancel := call(r)
	defer cancel()
	st, err := c.op.Status(ctx, e.Job)
	if err != nil {
		return err
	}
	var pairs []string
	for _, f := range st.Failures {
		if f.Error != "" {
			pairs = append(pairs, f.Error, hiddenError)
		}
	}
	hide := strings.NewReplacer(pairs...)
	for i := range e.Answers {
		a := &e.Answers[i]
		a.Summary, a.Do = hide.Replace(a.Summary), hide.Replace(a.Do)
		for j := range a.Gates {
			a.Gates[j].Detail = hide.Replace(a.Gates[j].Detail)
		}
	}
	return nil
}
