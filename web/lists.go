package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/web/internal/draw"
)

// listBody is a page of one screen.
type listBody struct {
	Stale    string
	Intro    string
	Sections []section
	Acts     []actLink
	Each     []eachActs // of the rows of an own table
}

// eachActs are the acts on one instance.
type eachActs struct {
	Name string
	Acts []actLink
}

func (c *Console) showInstances(w http.ResponseWriter, r *request) error {
	st, stale, err := c.readGroup(r)
	if err != nil {
		return err
	}
	v := view.InstancesOf(st)
	b := listBody{Stale: stale, Sections: screenOf(v.Screen, c.times(r), linkColumns(rootOf(r)))}
	if len(v.Instances) > 0 {
		for i, row := range b.Sections[0].Rows {
			state, _, _ := strings.Cut(v.Instances[i].State, ",")
			markState(b.Sections[0].Head, row.Cells, strings.ReplaceAll(state, " ", "-"))
		}
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(v.Names(), v.DisabledNames)))) {
		links := c.actLinks(r, acts.OnInstance, instanceLink(name)+"/act/")
		isDrained := slices.Contains(v.DisabledNames, name)
		links = slices.DeleteFunc(links, func(l actLink) bool { return l.Name == "drain" && isDrained || l.Name == "undrain" && !isDrained })
		if len(links) > 0 {
			b.Each = append(b.Each, eachActs{name, links})
		}
	}
	c.render(w, r, http.StatusOK, "list", page{Title: "Instances", Group: v.Group, Body: b})
	return nil
}

// showActs shows the acts on the group and on all jobs, or those on a job.
func (c *Console) showActs(w http.ResponseWriter, r *request) error {
	job := r.URL.Query().Get("job")
	if job != "" {
		return c.showActsOn(w, r, job)
	}
	_, stale, err := c.readGroup(r)
	if err != nil {
		return err
	}
	b := listBody{Stale: stale, Intro: "The latest acts of operators on jobs and on the whole group. The buttons below act on the whole group."}
	done := view.Events{Events: c.events(operator.EventsQuery{Kind: operator.EventAct, Limit: eventsOnPage})}
	b.Sections = screenOf(done.Screen, c.times(r), linkColumns(""))
	b.Acts = c.actLinks(r, acts.OnGroup, "act/")
	c.render(w, r, http.StatusOK, "list", page{Title: "Acts", Group: c.group(), Body: b})
	return nil
}

// nameOnGroup returns the name of an act on the group as buttons have it.
func nameOnGroup(v *acts.Verb) string {
	if isOnPool(v) {
		return v.Name
	}
	return v.Name + " the whole group"
}

// isOnPool reports whether an act is on a pool of the group.
func isOnPool(v *acts.Verb) bool {
	return slices.ContainsFunc(v.Fields, func(f acts.Field) bool { return f.Name == "pool" })
}

// showActsOn shows the acts on a job, and those on the group, which are on it as well.
func (c *Console) showActsOn(w http.ResponseWriter, r *request, job string) error {
	ctx, cancel := call(r)
	defer cancel()
	v, err := look.Acts(ctx, c.op, job)
	if err != nil {
		return err
	}
	b := listBody{Intro: "The latest acts of operators on " + job + " and on the whole group."}
	b.Sections = screenOf(v.Screen, c.times(r), linkColumns(""))
	c.render(w, r, http.StatusOK, "list", page{Title: "Acts on " + job, Group: c.group(), Body: b})
	return nil
}

// diagnosisBody is the page of what is wrong in the records.
type diagnosisBody struct {
	Findings []finding
	Read     draw.Text // when the records were read
}

type finding struct {
	operator.Finding
	Severity, Link string
}

// diagnose checks all records of the group. That costs a read of all, so pages and the HTTP API share a diagnosis for diagnosisFor. It must
// not be changed.
func (c *Console) diagnose() (operator.Diagnosis, error) {
	return c.diagnoses.get("", func() (operator.Diagnosis, error) {
		ctx, cancel := callAlone()
		defer cancel()
		return c.op.Diagnose(ctx)
	})
}

func (c *Console) showDiagnosis(w http.ResponseWriter, r *request) error {
	d, err := c.diagnose()
	if err != nil {
		return err
	}
	t := c.times(r)
	b := diagnosisBody{Read: draw.Text{Text: t.At(d.At), Exact: d.At.In(t.Zone).Format(time.RFC1123Z)}}
	for _, f := range d.Findings {
		found := finding{Finding: f, Severity: f.Severity.String()}
		if f.Job != "" {
			found.Link = jobLink(f.Job)
		}
		b.Findings = append(b.Findings, found)
	}
	c.render(w, r, http.StatusOK, "doctor", page{Title: "Doctor", Group: c.group(), Body: b})
	return nil
}

// callAlone returns a context for a call whose answer several requests share: the end of one must not end it.
func callAlone() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callTimeout)
}
