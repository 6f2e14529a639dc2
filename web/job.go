package web

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/web/internal/draw"
)

// shardRows bounds the rows of a job's shards. Shards that are alike share one.
const shardRows = 100

// nextOnPage is how many next fires a job's page has.
const nextOnPage = 5

// jobBody is the page of a job.
type jobBody struct {
	Job, Why string
	State    string
	Text     string
	Strip    template.HTML
	Legend   template.HTML
	Grid     string
	// LastFailure is the address of the last run that failed, empty if none is on record.
	LastFailure string
	Sections    []section
	Shards      draw.Table
	MoreShards  int
	Acts        []actLink
}

// actLink leads to the form of an act.
type actLink struct {
	Name, Short, Link string
	Origin            acts.Origin
}

func (c *Console) showJob(w http.ResponseWriter, r *request) error {
	st, err := c.status(r.PathValue("job"))
	if err != nil {
		return err
	}
	ctx, cancel := call(r)
	defer cancel()
	detail, err := look.JobOf(ctx, c.op, st, nextOnPage)
	if err != nil {
		return err
	}
	job := st.Summary()
	summary := view.JobOf(&job, detail.At, view.LateAfter)
	here := url.PathEscape(st.Job) + "/" // relative to this page
	b := jobBody{Job: st.Job, State: summary.State, Text: summary.Describe(), Why: here + "explain", Grid: here + "grid", Legend: draw.Legend()}
	if failed := job.LastFailure; !failed.At.IsZero() && len(failed.Shards) > 0 {
		b.LastFailure = draw.Links{Base: here}.Run(failed.Fire, failed.Trigger, failed.Shards[0])
	}
	b.Strip = c.strip(r, st, here)
	links := linkColumns(rootOf(r))
	b.Sections = screenOf(shown(r, detail).Screen, c.times(r), links)
	shards := screenOf(shown(r, view.ShardsOf(*st, "", detail.At)).Screen, c.times(r), links)
	if len(shards) > 0 {
		b.Shards = shards[0].Table
		b.MoreShards = max(0, len(b.Shards.Rows)-shardRows)
		b.Shards.Rows = b.Shards.Rows[:len(b.Shards.Rows)-b.MoreShards]
		for i := range b.Shards.Rows {
			row := &b.Shards.Rows[i]
			row.ID = "shards-" + row.Cells[0].Text
			row.Cells[0].Link = here + "explain?shard=" + strings.SplitN(row.Cells[0].Text, "-", 2)[0]
		}
	}
	origin := acts.Registered
	if st.Kind != "" {
		origin = acts.Defined
		if err := c.addDefinition(r, &b); err != nil {
			return err
		}
	}
	b.Acts = slices.DeleteFunc(c.actLinks(r, acts.OnJob, here+"act/"), func(l actLink) bool { return l.Origin != "" && l.Origin != origin })
	c.render(w, r, http.StatusOK, "job", page{Title: st.Job, Group: c.group(), Body: b})
	return nil
}

// status returns the state of a job. It must not be changed.
func (c *Console) status(job string) (*operator.Status, error) {
	return c.statuses.get(job, func() (*operator.Status, error) {
		ctx, cancel := callAlone()
		defer cancel()
		st, err := c.op.Status(ctx, job)
		return &st, err
	})
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
	fire, err := c.instantOf(r, "at")
	if err != nil {
		return err
	}
	v, err := c.explain(r, b.Job, shard, fire)
	if err != nil {
		return err
	}
	for _, a := range v.Answers {
		found := answer{Answer: a, Shards: view.ShardsText(a.Shards)}
		found.Act, found.ActName = c.actOf(r, &a, "", rootOf(r))
		b.Answers = append(b.Answers, found)
	}
	c.render(w, r, http.StatusOK, "explain", page{Title: "Why: " + b.Job, Group: c.group(), Body: b})
	return nil
}

// explain asks the records, and the history if they do not tell.
func (c *Console) explain(r *request, job string, shard int, fire time.Time) (view.Explanation, error) {
	ctx, cancel := call(r)
	defer cancel()
	v, ofHistory, err := look.Explain(ctx, c.op, c.options.History, job, shard, fire)
	if ofHistory != nil {
		c.warnOfHistory(r, ofHistory)
	}
	return shown(r, v), err
}

// shown returns a view without what the user may not see.
func shown[V any](r *request, v V) V {
	if r.user.Role >= Reveal {
		return v
	}
	return view.Conceal(v).(V)
}
