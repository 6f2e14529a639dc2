package browsertest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/web"
)

// formAct is an act by its form.
type formAct struct {
	on     acts.Target
	name   string // of the job or instance
	verb   string
	values map[string]string // what is typed; "yes" ticks a switch
	answer string            // part of what the page shows then
	// recorded is part of the act on record; empty if the act is refused or changes nothing.
	recorded string
	refused  bool
}

// isNew reports whether the act defines a job by the form that asks for its name.
func (a formAct) isNew() bool { return a.values["job"] != "" }

// page returns the page that has the link to the form.
func (a formAct) page() string {
	switch {
	case a.isNew():
		return "definitions"
	case a.on == acts.OnJob:
		return "jobs/" + url.PathEscape(a.name)
	case a.on == acts.OnInstance:
		return "instances"
	}
	return "acts"
}

// target returns the page that shows the answer.
func (a formAct) target() string {
	switch {
	case a.on == acts.OnGroup:
		return ""
	case a.isNew():
		return "jobs/" + url.PathEscape(a.name)
	case a.verb == "delete":
		return "definitions"
	}
	return a.page()
}

// path returns the address of the form.
func (a formAct) path() string {
	switch {
	case a.isNew():
	case a.on == acts.OnJob:
		return a.page() + "/act/" + a.verb
	case a.on == acts.OnInstance:
		return "instances/" + url.PathEscape(a.name) + "/act/" + a.verb
	}
	return "act/" + a.verb
}

// formActs are acts in an order in which each makes sense, of each verb one at least.
func formActs(st operator.GroupStatus) []formAct {
	instant := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	now := time.Now()
	return []formAct{
		{on: acts.OnJob, name: "settle", verb: "pause", values: map[string]string{"until": instant(now.Add(time.Hour).Truncate(time.Second))}, answer: "Paused settle until", recorded: "pause"},
		{on: acts.OnJob, name: "settle", verb: "resume", answer: "Resumed settle", recorded: "resume"},
		{on: acts.OnJob, name: "settle", verb: "trigger", values: map[string]string{"shards": "1-2", "param": markup}, answer: "Triggered settle: #2", recorded: "trigger"},
		{on: acts.OnJob, name: "mail", verb: "retry", values: map[string]string{"fire": instant(jobIn(st, "mail").LastFailure.Fire)}, answer: "mail", recorded: "retry"},
		{on: acts.OnJob, name: "settle", verb: "retry", values: map[string]string{"fire": instant(now.Truncate(time.Hour))}, answer: "no failed run", refused: true},
		{on: acts.OnJob, name: "settle", verb: "backfill", values: map[string]string{"from": instant(now.Add(-48 * time.Hour)), "to": instant(now), "parallel": "2"}, answer: "Backfills 2 fires of settle", recorded: "backfill"},
		{on: acts.OnJob, name: "settle", verb: "stop-backfills", answer: "of settle"},
		{on: acts.OnJob, name: "settle", verb: "backfill", values: map[string]string{"from": instant(now), "to": instant(now)}, answer: "has no fire", refused: true},
		{on: acts.OnJob, name: "export", verb: "cancel", answer: "Cancelled export", recorded: "cancel"},
		{on: acts.OnJob, name: "tenants", verb: "disable", values: map[string]string{"shards": "3,5-6"}, answer: "Disabled", recorded: "disable"},
		{on: acts.OnJob, name: "tenants", verb: "enable", values: map[string]string{"shards": "3,5-6,42"}, answer: "Enabled", recorded: "enable"},
		{on: acts.OnJob, name: "tenants", verb: "disable", values: map[string]string{"shards": "9-"}, answer: "9-", refused: true},
		{on: acts.OnJob, name: "settle", verb: "override", values: map[string]string{"fields.timeout": "2h"}, answer: "timeout", recorded: "override"},
		{on: acts.OnJob, name: "settle", verb: "override", values: map[string]string{"clear_all": "yes"}, answer: "settle", recorded: "override"},
		{on: acts.OnJob, name: "settle", verb: "reset", answer: "Reset settle", recorded: "reset"},
		{on: acts.OnJob, name: oddJob, verb: "pause", answer: "Paused " + oddJob, recorded: "pause"},
		{on: acts.OnJob, name: oddJob, verb: "retire", answer: "Retires " + oddJob, recorded: "retire"},
		{on: acts.OnJob, name: oddJob, verb: "unretire", answer: "Unretired " + oddJob, recorded: "unretire"},
		{on: acts.OnJob, name: "settle", verb: "forget", answer: "in use", refused: true},
		{on: acts.OnJob, name: oddDefined, verb: "define", values: map[string]string{"job": oddDefined, "kind": "reminder", "fields.schedule": "on trigger", "fields.param": markup}, answer: "Created " + oddDefined, recorded: "define"},
		{on: acts.OnJob, name: oddDefined, verb: "define", values: map[string]string{"fields.timeout": "2m"}, answer: "Changed " + oddDefined, recorded: "define: change timeout"},
		{on: acts.OnJob, name: oddDefined, verb: "define", values: map[string]string{"fields.catchup_window": "soon"}, answer: "fields.catchup_window: ", refused: true},
		{on: acts.OnJob, name: oddDefined, verb: "delete", values: map[string]string{"cancel_runs": "yes"}, answer: "Deleted " + oddDefined},
		{on: acts.OnGroup, verb: "pause", answer: "Paused all jobs", recorded: "pause"},
		{on: acts.OnGroup, verb: "resume", answer: "Resumed the group", recorded: "resume"},
		{on: acts.OnGroup, verb: "acknowledge", answer: "No loss of records is on record"},
		{on: acts.OnGroup, verb: "disable", values: map[string]string{"hosts": "host-3"}, answer: "host-3", recorded: "host-3"},
		{on: acts.OnGroup, verb: "enable", values: map[string]string{"hosts": "host-3"}, answer: "host-3", recorded: "host-3"},
		{on: acts.OnGroup, verb: "set-pool", values: map[string]string{"pool": "db", "size": "8"}, answer: "Pool db has 8 slots", recorded: "set pool db to 8"},
		{on: acts.OnGroup, verb: "set-pool", values: map[string]string{"pool": "db", "size": "many"}, answer: "many", refused: true},
		{on: acts.OnGroup, verb: "delete-pool", values: map[string]string{"pool": "db"}, answer: "Pool db has no size any more", recorded: "delete pool db"},
		{on: acts.OnInstance, name: "web-3", verb: "drain", answer: "Drains web-3", recorded: "web-3"},
		{on: acts.OnInstance, name: "web-3", verb: "undrain", answer: "Undrained web-3", recorded: "web-3"},
	}
}

func TestActs_HaveARowForEachVerb(t *testing.T) {
	type verb struct {
		on   acts.Target
		name string
	}
	rows := map[verb]bool{}
	for _, a := range formActs(operator.GroupStatus{}) {
		rows[verb{a.on, a.verb}] = true
	}
	for _, v := range acts.Verbs {
		assert.True(t, rows[verb{v.On, v.Name}], "no act %q on a %s", v.Name, v.On)
	}
}

// Each act is done by the keyboard alone: from the link on the page, through the form, to the answer.
func TestActs(t *testing.T) {
	for _, l := range []look{{}, {phone: true, noScripts: true}} {
		t.Run(l.String(), func(t *testing.T) {
			f := startFleet(t)
			at := f.mount(t, web.Admin)
			st := f.await(t, "there is a group", func(operator.GroupStatus) bool { return true })
			b := openTab(t, l)
			for _, a := range formActs(st) {
				b.subtest(t, a.path(), func(t *testing.T) { f.actByForm(t, b, at, a) })
			}
		})
	}
}

// reason is what the viewer types as reason.
const reason = `quarter end, <em>really</em> & "now"`

func (f *fleet) actByForm(t *testing.T, b *tab, at string, a formAct) {
	require.EqualValues(t, http.StatusOK, b.visit(at+a.page()))
	before := f.actsOn(t, a)
	link := chromedp.CSS(`a[href$=` + quote("act/"+a.verb) + `]`)
	if a.on == acts.OnInstance {
		link = chromedp.CSS(`a[href$=` + quote("instances/"+a.name+"/act/"+a.verb) + `]`)
	}
	require.True(t, eval[bool](b, `document.querySelector(`+quote(string(link))+`) !== null`), "no link to the act")
	require.EqualValues(t, http.StatusOK, b.follow(chromedp.Focus(link), chromedp.KeyEvent(kb.Enter)))
	require.Equal(t, at+a.path(), b.location())
	assert.Equal(t, before, f.actsOn(t, a), "the form alone acts")
	for name, value := range a.values {
		if value == "yes" {
			b.do(chromedp.Focus(chromedp.CSS(`input[name=`+quote(name)+`]`)), chromedp.KeyEvent(" "))
		} else {
			b.do(chromedp.Focus(chromedp.CSS(`[name=`+quote(name)+`]`)), insert(value))
		}
	}
	b.do(chromedp.Focus(chromedp.CSS(`[name=reason]`)), insert(reason))
	status := b.follow(chromedp.KeyEvent(kb.Enter))
	if a.refused {
		assert.EqualValues(t, http.StatusUnprocessableEntity, status)
		assert.Contains(t, b.text("main"), a.answer)
		for name, value := range a.values {
			assert.Equal(t, value, eval[string](b, `document.querySelector("[name='`+name+`']").value`), "what was typed")
		}
		assert.Equal(t, reason, eval[string](b, `document.querySelector("[name=reason]").value`), "what was typed")
		assert.Equal(t, before, f.actsOn(t, a))
		b.takeReports() // the browser logs the status
		return
	}
	assert.EqualValues(t, http.StatusOK, status)
	address, _, _ := strings.Cut(b.location(), "?")
	assert.Equal(t, at+a.target(), address)
	assert.Contains(t, b.text("[role=status]"), a.answer)
	after := f.actsOn(t, a)
	if a.recorded == "" {
		return
	}
	require.NotEmpty(t, after)
	last := after[len(after)-1]
	assert.Equal(t, "kim", last.By)
	assert.Equal(t, reason, last.Reason)
	assert.Contains(t, strings.ToLower(last.What), a.recorded)
	b.follow(reload)
	assert.Equal(t, after, f.actsOn(t, a), "the page after an act acts again when it is reloaded")
}

// reload loads the page again.
func reload(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
	_, err := cdp.Call(ctx, t, page.Reload, page.ReloadParams{})
	return chromedp.Void{}, err
}

// actsOn returns the recorded acts on the target of an act. Those on instances are on the group.
func (f *fleet) actsOn(t *testing.T, a formAct) []operator.Act {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	job := ""
	if a.on == acts.OnJob {
		job = a.name
	}
	all, err := f.op.Acts(ctx, job)
	if !errors.Is(err, operator.ErrUnknownJob) && !errors.Is(err, operator.ErrDeleting) {
		require.NoError(t, err)
	}
	return all
}
