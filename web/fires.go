package web

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/web/internal/draw"
	"github.com/rota-dev/rota/web/internal/past"
)

// links returns the links of drawings on a page from which base leads to the directory of the job. The chosen zone stays.
func links(r *request, base string) draw.Links {
	l := draw.Links{Base: base}
	if zone := r.URL.Query().Get("zone"); zone != "" {
		l.Query = url.Values{"zone": {zone}}.Encode()
	}
	return l
}

// showGrid shows the last fires of a job by ranges of shards.
func (c *Console) showGrid(w http.ResponseWriter, r *request) error {
	st, err := c.status(r.PathValue("job"))
	if err != nil {
		return err
	}
	of, err := draw.ParseRange(r.URL.Query().Get("shards"))
	if err != nil {
		return problemf(http.StatusBadRequest, "The shards are %q, and not a range such as 0-63.", r.URL.Query().Get("shards"))
	}
	until, err := c.instantOf(r, "until")
	if err != nil {
		return err
	}
	ctx, cancel := call(r)
	defer cancel()
	g, err := past.ReadGrid(ctx, c.options.History, st, past.GridQuery{Of: of, Until: until})
	if err != nil {
		return err
	}
	b := draw.GridPageOf(g, c.options.History != nil, links(r, ""), c.times(r))
	c.render(w, r, http.StatusOK, "grid", page{Title: "Fires of " + st.Job, Group: c.group(), Body: b})
	return nil
}

// showFire shows a fire or a trigger with its shards.
func (c *Console) showFire(w http.ResponseWriter, r *request) error {
	st, q, err := c.fireOf(r)
	if err != nil {
		return err
	}
	q.From, _ = strconv.Atoi(r.URL.Query().Get("from")) // anything else is the beginning
	q.From = max(0, q.From)
	ctx, cancel := call(r)
	defer cancel()
	f, found, err := past.ReadFire(ctx, c.options.History, st, q)
	if err != nil {
		return err
	}
	switch {
	case found:
	case c.options.History != nil:
		return problemf(http.StatusNotFound, "Nothing is on record of this fire of %s.", st.Job)
	default: // a link may lead to a run that has ended since
		f.Note = "Nothing is on record of this fire, which may have ended"
	}
	b := draw.FirePageOf(f, c.options.History != nil, links(r, "../"), c.times(r))
	if f.HasFailed() && c.mayAct(r, "retry") == nil {
		b.Retry = "../act/retry?" + url.Values{"fire": {f.Fire.UTC().Format(time.RFC3339Nano)}}.Encode()
	}
	c.render(w, r, http.StatusOK, "fire", page{Title: st.Job + ": " + b.Name.Text, Group: c.group(), Body: b})
	return nil
}

// showRun shows the attempts of a shard for a fire or a trigger.
func (c *Console) showRun(w http.ResponseWriter, r *request) error {
	st, q, err := c.fireOf(r)
	if err != nil {
		return err
	}
	shard, err := strconv.Atoi(r.PathValue("shard"))
	if err != nil || shard < 0 {
		return problemf(http.StatusNotFound, "The shard is %q, not a number.", r.PathValue("shard"))
	}
	run, err := c.readRun(st, q, shard)
	if err != nil {
		return err
	}
	switch {
	case run.found:
	case c.options.History == nil:
		run.Shard, run.Note = shard, "Nothing is on record of this run, which may have ended."
	default:
		return problemf(http.StatusNotFound, "Nothing is on record of shard %d for this fire of %s.", shard, st.Job)
	}
	b := draw.RunPageOf(run.Run, c.options.History != nil, links(r, "../../../"), c.times(r))
	b.Log = c.logPart(r, &run.Run)
	c.render(w, r, http.StatusOK, "run", page{Title: st.Job + ", shard " + strconv.Itoa(shard), Group: c.group(), Body: b})
	return nil
}

// foundRun is a run as past.ReadRun returns it.
type foundRun struct {
	past.Run
	found bool
}

// readRun reads the attempts of a shard, for all viewers at once: a page of a run that goes on is fetched again and again for its log.
func (c *Console) readRun(st *operator.Status, q past.FireQuery, shard int) (foundRun, error) {
	return c.runs.get(fmt.Sprint(q.Fire.UnixNano(), q.Trigger, shard, q.Reveal, " ", q.Job), func() (run foundRun, err error) {
		ctx, cancel := callAlone()
		defer cancel()
		run.Run, run.found, err = past.ReadRun(ctx, c.options.History, st, q, shard)
		return run, err
	})
}

// foundLogs are logs as past.ReadLogs returns them.
type foundLogs struct {
	logs []*past.RunLog
	left int
}

// logPart returns the logs of a run for its page. A history that fails costs no more than them.
func (c *Console) logPart(r *request, run *past.Run) draw.LogPart {
	switch {
	case r.user.Role < Reveal:
		return draw.LogPart{Note: draw.LogNeedsReveal}
	case c.options.History == nil:
		return draw.LogPart{Note: draw.LogWithoutHistory}
	case !look.HasLogs(c.options.History):
		return draw.LogPart{Note: look.WithoutLogs}
	}
	found, err := c.logs.get(fmt.Sprint(run.Fire.UnixNano(), run.Trigger, run.Shard, " ", run.Job), func() (found foundLogs, err error) {
		ctx, cancel := callAlone()
		defer cancel()
		found.logs, found.left, err = past.ReadLogs(ctx, c.options.History, run.Job, run.Fire, run.Trigger, run.Shard)
		return found, err
	})
	if err != nil {
		c.warnOfHistory(r, err)
		return draw.LogPart{Note: draw.LogUnreadable}
	}
	follow := run.Runs() || slices.ContainsFunc(found.logs, func(l *past.RunLog) bool { return l.MayGrow(time.Now()) })
	return draw.LogPartOf(found.logs, found.left, follow, c.times(r))
}

// fireOf returns the job and the fire of an address.
func (c *Console) fireOf(r *request) (*operator.Status, past.FireQuery, error) {
	q := past.FireQuery{Job: r.PathValue("job"), Reveal: r.user.Role >= Reveal, Now: time.Now()}
	var err error
	if q.Fire, q.Trigger, err = draw.ParseFireName(r.PathValue("fire")); err != nil {
		return nil, q, problemf(http.StatusNotFound, "%q is neither an instant nor a trigger.", r.PathValue("fire"))
	}
	st, err := c.status(q.Job)
	return st, q, err
}

// strip draws the last fires of a job for its page. A history that fails costs no more than the strip.
func (c *Console) strip(r *request, st *operator.Status, base string) template.HTML {
	ctx, cancel := call(r)
	defer cancel()
	s, err := past.ReadStrips(ctx, c.options.History, []operator.JobSummary{st.Summary()})
	if err != nil {
		c.warnOfHistory(r, err)
		return ""
	}
	return draw.Strip(s[st.Job], links(r, base), c.times(r))
}

// warnOfHistory logs that a page lacks what the history has.
func (c *Console) warnOfHistory(r *request, err error) {
	c.options.Logger.Warn("the console cannot read the history", "path", r.URL.Path, "error", err)
}

// strips draws the last fires of the jobs on a page of the fleet, by their names. They are read for all viewers at once.
func (c *Console) strips(r *request, jobs []view.Job) map[string]template.HTML {
	if c.options.History == nil {
		return nil
	}
	var summaries []operator.JobSummary
	key := ""
	for i := range jobs {
		summaries = append(summaries, jobs[i].JobSummary)
		key += jobs[i].Job + "\n"
	}
	read, err := c.pasts.get(key, func() (map[string]past.Strip, error) {
		ctx, cancel := callAlone()
		defer cancel()
		return past.ReadStrips(ctx, c.options.History, summaries)
	})
	if err != nil {
		c.warnOfHistory(r, err)
		return nil
	}
	drawn := make(map[string]template.HTML, len(read))
	for name, s := range read {
		drawn[name] = draw.BriefStrip(s, links(r, jobLink(name)+"/"), c.times(r))
	}
	return drawn
}
