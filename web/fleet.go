package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/internal/shell"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/web/internal/draw"
)

const (
	jobsOnPage  = 60 // a strip of fires may take 2 KiB
	wrongOnPage = 20
)

// fleetBody is the page of the group: what is wrong first, then the jobs.
type fleetBody struct {
	Stale     string
	Alerts    []wrongThing
	Wrong     []wrongJob
	MoreWrong int

	Query, State string
	States       []stateLink
	Table        draw.Table
	From, To, Of int
	Older, Newer string // addresses of the neighbouring pages
	Note         string
	Legend       template.HTML // of the strips
}

// wrongJob is a job that needs somebody.
type wrongJob struct {
	Job, Link, State, Text string
	What, Do, Command      string
	remedy
	failed time.Time // the fire of a job that fails, zero for a trigger
}

// wrongThing is a fault of the group or of an instance.
type wrongThing struct {
	view.Alert
	remedy
}

// remedy is a button that leads to what helps: the form of an act, for those who may do it, or the page that says more.
type remedy struct{ Button, ButtonName string }

// stateLink is a state with the number of its jobs.
type stateLink struct {
	Name   string
	Count  int
	Link   string
	Chosen bool
}

// wrongStates are the states that need somebody.
var wrongStates = []string{view.Late, view.Unowned, view.Problem, view.Failing, view.Expired}

func (c *Console) showFleet(w http.ResponseWriter, r *request) error {
	st, stale, err := c.readGroup(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	b := fleetBody{Stale: stale, Query: query.Get("q"), State: query.Get("state")}
	filter := view.JobsFilter{Glob: globOf(b.Query), State: b.State}
	if err := filter.Check(); err != nil {
		return problemf(http.StatusBadRequest, "%v", err)
	}
	all := c.digest.of(st)
	b.Note = all.Note
	for _, a := range all.Alerts {
		b.Alerts = append(b.Alerts, wrongThing{a, c.remedyOf(r, &a)})
	}
	b.addWrong(all.Jobs)
	c.advise(r, b.Wrong)
	b.addStates(choose(all.Jobs, view.JobsFilter{Glob: filter.Glob}, all.At), query)
	b.addStrips(c.strips(r, b.addPage(choose(all.Jobs, filter, all.At), query, c.times(r))))
	if view.IsEmpty(&st) {
		b.Note = "Nothing is stored of this group yet: start an instance, or check the namespace and the group."
	}
	c.render(w, r, http.StatusOK, "fleet", page{Title: "Fleet", Group: all.Group, Body: b})
	return nil
}

// digest is the list of jobs as of a snapshot, the gravest states first. All requests between two snapshots share it.
type digest struct {
	mu   sync.Mutex
	at   time.Time
	jobs view.Jobs
}

// of returns the list of a snapshot. It must not be changed.
func (d *digest) of(st operator.GroupStatus) view.Jobs {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || !d.at.Equal(st.At) {
		d.at, d.jobs = st.At, view.JobsOf(st, view.JobsFilter{})
		gravity := map[string]int{}
		for i, state := range view.JobStates {
			gravity[state] = i
		}
		slices.SortStableFunc(d.jobs.Jobs, func(x, y view.Job) int { return gravity[x.State] - gravity[y.State] })
	}
	return d.jobs
}

// drop has the next request compute the list: a snapshot that an act has brought may have the instant of the last one.
func (d *digest) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = time.Time{}
}

// choose returns the jobs that a filter selects.
func choose(jobs []view.Job, f view.JobsFilter, now time.Time) []view.Job {
	if f == (view.JobsFilter{}) {
		return jobs
	}
	var chosen []view.Job
	for i := range jobs {
		if f.Selects(&jobs[i].JobSummary, now) {
			chosen = append(chosen, jobs[i])
		}
	}
	return chosen
}

// globOf returns the pattern of what somebody typed: a part of a name, unless it is a pattern already.
func globOf(q string) string {
	if q == "" || strings.ContainsAny(q, `*?[\`) {
		return q
	}
	return "*" + q + "*"
}

// addWrong adds the jobs that need somebody. They come first in the list.
func (b *fleetBody) addWrong(jobs []view.Job) {
	for i := range jobs {
		j := &jobs[i]
		switch {
		case !slices.Contains(wrongStates, j.State):
		case len(b.Wrong) == wrongOnPage:
			b.MoreWrong++
		default:
			wrong := wrongJob{Job: j.Job, Link: jobLink(j.Job), State: j.State, Text: j.Describe(), Command: "rota explain " + shell.Quote(j.Job)}
			if j.State == view.Failing && j.LastFailure.Trigger == 0 {
				wrong.failed = j.LastFailure.Fire
			}
			b.Wrong = append(b.Wrong, wrong)
		}
	}
}

// remedyOf returns the button for a fault.
func (c *Console) remedyOf(r *request, a *view.Alert) remedy {
	switch {
	case a.Act != "" && c.mayAct(r, a.Act) == nil:
		return remedy{instanceLink(a.Instance) + "/act/" + a.Act, a.Act}
	case a.Command == "rota doctor":
		return remedy{"doctor", "Doctor"}
	}
	return remedy{}
}

// advise adds to each job what helps, in the words of rota explain or rota doctor. It reads nothing from the store.
func (c *Console) advise(r *request, jobs []wrongJob) {
	for i := range jobs {
		j := &jobs[i]
		found, ok := c.adviceOf(r, j)
		if !ok {
			continue
		}
		if j.What, j.Do = found.What, found.Do; found.Answer != nil {
			j.Command = cmp.Or(found.Answer.Command, j.Command)
			j.Button, j.ButtonName = c.actOf(r, found.Answer, j.Link+"/", "")
		}
	}
}

// adviceOf returns what helps a job. Of one that fails it is about the fire that failed, whatever the newest fire does: it may run, or
// wait for the end of a pause.
func (c *Console) adviceOf(r *request, j *wrongJob) (look.Advice, bool) {
	fires := []time.Time{{}}
	if !j.failed.IsZero() {
		fires = []time.Time{j.failed, {}}
	}
	for _, fire := range fires {
		if e, ok := c.explainNow(j.Job, fire); ok {
			e = shown(r, e)
			if found, ok := look.AdviceOf(&e, nil); ok {
				return found, true
			}
		}
	}
	return look.AdviceOf(&view.Explanation{Explanation: operator.Explanation{Job: j.Job}}, c.findingsNow())
}

// explainNow explains a fire of a job by the snapshot, the newest one if fire is zero, once for all viewers of it.
func (c *Console) explainNow(job string, fire time.Time) (view.Explanation, bool) {
	v, err := c.explanations.get(job+" "+fire.String(), func() (v view.Explanation, err error) {
		err = errClosed
		c.feed.ask(func(g *operator.GroupView) {
			var e operator.Explanation
			if e, err = g.Explain(job, operator.AllShards, fire); err == nil {
				v = view.ExplanationOf(e, view.UnnamedHistory)
			}
		})
		return v, err
	})
	return v, err == nil
}

// findingsNow returns the findings about the jobs of the snapshot.
func (c *Console) findingsNow() []operator.Finding {
	all, _ := c.findings.get("", func() (all []operator.Finding, err error) {
		c.feed.ask(func(g *operator.GroupView) { all = g.JobFindings() })
		return all, nil
	})
	return all
}

// addStates adds the states of the jobs that the name selects, and that which is chosen.
func (b *fleetBody) addStates(jobs []view.Job, query url.Values) {
	counts := map[string]int{}
	for i := range jobs {
		counts[jobs[i].State]++
	}
	for _, name := range view.JobStates {
		if n := counts[name]; n > 0 || name == b.State {
			b.States = append(b.States, stateLink{name, n, withQuery(query, "state", name), name == b.State})
		}
	}
}

// withQuery returns the address of this page with another value, on its first part.
func withQuery(query url.Values, name, value string) string {
	q := keep(query, "q", "state", "zone")
	q.Set(name, value)
	return "?" + q.Encode()
}

// keep returns the values of a query that have one of the names and are not empty.
func keep(query url.Values, names ...string) url.Values {
	q := url.Values{}
	for _, name := range names {
		if v := query.Get(name); v != "" {
			q.Set(name, v)
		}
	}
	return q
}

// addPage adds the part of the jobs that the query asks for, and returns it.
func (b *fleetBody) addPage(jobs []view.Job, query url.Values, t view.Times) []view.Job {
	from, _ := strconv.Atoi(query.Get("from")) // anything else is the beginning
	from = max(0, min(from, len(jobs)-1))
	to := min(from+jobsOnPage, len(jobs))
	b.Of, b.From, b.To = len(jobs), from+1, to
	if from > 0 {
		b.Newer = withQuery(query, "from", strconv.Itoa(max(0, from-jobsOnPage)))
	}
	if to < len(jobs) {
		b.Older = withQuery(query, "from", strconv.Itoa(to))
	}
	if len(jobs) == 0 {
		return nil
	}
	v := view.Jobs{Jobs: jobs[from:to]}
	b.Table = screenOf(v.Screen, t, linkColumns(""))[0].Table
	for i := range b.Table.Rows {
		b.Table.Rows[i].ID = "job-" + v.Jobs[i].Job
		markState(b.Table.Head, b.Table.Rows[i].Cells, v.Jobs[i].State)
	}
	return v.Jobs
}

// markState gives the cell of the column STATE its class.
func markState(head []string, cells []draw.Text, state string) {
	if i := slices.Index(head, "STATE"); i >= 0 {
		cells[i].State = state
	}
}

// addStrips adds a column with the last fires of each job, if there is a history.
func (b *fleetBody) addStrips(drawn map[string]template.HTML) {
	if drawn == nil {
		return
	}
	b.Table.Head, b.Legend = append(b.Table.Head, "LAST FIRES"), draw.Legend()
	for i := range b.Table.Rows {
		r := &b.Table.Rows[i]
		r.Cells = append(r.Cells, draw.Text{Drawing: drawn[r.Cells[0].Text]})
	}
}

// Shown says which jobs the page has.
func (b fleetBody) Shown() string {
	if b.Of <= jobsOnPage {
		return ""
	}
	return fmt.Sprintf("%d to %d of %d", b.From, b.To, b.Of)
}
