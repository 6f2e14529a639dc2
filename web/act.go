package web

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/web/internal/role"
)

// actBody is the form of an act, which is also the question whether to do it.
type actBody struct {
	Verb   acts.Verb
	On     string            // the job or the instance; empty for the group
	Asked  string            // the act and what it is on
	Warns  string            // what cannot be taken back
	Values map[string]string // by the names of fields
	Fields []formField
	Reason string
	Error  string // why the last try was refused
	Back   string
}

// formField is a field with its value. One with Keys is asked for by them.
type formField struct {
	acts.Field
	Value string
	Keys  []formField
}

// fieldsOf returns the fields of a form. The values of secret ones are not repeated.
func fieldsOf(fields []acts.Field, prefix string, values map[string]string) (out []formField) {
	for _, f := range fields {
		field := formField{Field: f, Keys: fieldsOf(f.Keys, f.Name+".", values)}
		if field.Name = prefix + f.Name; !f.Secret {
			field.Value = values[field.Name]
		}
		out = append(out, field)
	}
	return out
}

// targetOf returns the act that a request names, and what it is on.
func targetOf(r *request) (acts.Verb, string, error) {
	on, name := acts.OnGroup, ""
	if job := r.PathValue("job"); job != "" {
		on, name = acts.OnJob, job
	} else if instance := r.PathValue("instance"); instance != "" {
		on, name = acts.OnInstance, instance
	}
	v, ok := acts.Find(r.PathValue("verb"), on)
	if !ok && on == acts.OnGroup && r.PathValue("verb") == define { // the form asks for the name
		v, ok = acts.Find(define, acts.OnJob)
		name = r.PostForm.Get(jobField.Name)
	}
	if !ok {
		return v, name, problemf(http.StatusNotFound, "There is no act %q on this.", r.PathValue("verb"))
	}
	return v, name, nil
}

// mayAct returns an error unless the user may do an act here.
func (c *Console) mayAct(r *request, verb string) error {
	switch need := role.For(verb); {
	case !c.options.Acts:
		return problemf(http.StatusForbidden, "This console acts for nobody.")
	case r.user.Role < need:
		return problemf(http.StatusForbidden, "This act needs the role %s; %s has the role %s.", need, r.user.Name, r.user.Role)
	}
	return nil
}

// askAct shows the form of an act. Values of fields may come in the query, as links of other pages set them.
func (c *Console) askAct(w http.ResponseWriter, r *request) error {
	v, on, err := targetOf(r)
	if err == nil {
		err = c.mayAct(r, v.Name)
	}
	if err != nil {
		return err
	}
	b := actBody{Verb: v, On: on, Values: first(r.URL.Query())}
	if v.Name == define {
		if err := c.fillDefine(r, &b); err != nil {
			return err
		}
	}
	c.showAct(w, r, http.StatusOK, b)
	return nil
}

func (c *Console) showAct(w http.ResponseWriter, r *request, status int, b actBody) {
	fields := b.Verb.Fields
	b.Back, b.Asked = backOf(b.Verb.On, b.On), b.Verb.Name+" "+b.On
	switch isNew := r.PathValue("job") == ""; {
	case b.Verb.On == acts.OnGroup:
		b.Asked = nameOnGroup(&b.Verb)
	case b.Verb.Name == define:
		fields = fieldsOfDefine(fields, isNew)
		if isNew {
			b.Back, b.Asked = "definitions", defineJob
		}
	}
	b.Fields = fieldsOf(fields, "", b.Values)
	if b.Verb.Confirm != nil {
		b.Warns = "This will " + b.Verb.Confirm(b.Verb.For(b.On)) + "."
	}
	c.render(w, r, status, "act", page{Title: b.Asked, Group: c.group(), Body: b})
}

// backOf returns the page that an act is on, relative to the fleet's.
func backOf(on acts.Target, name string) string {
	switch on {
	case acts.OnJob:
		return jobLink(name)
	case acts.OnInstance:
		return "instances"
	}
	return ""
}

func first(values url.Values) map[string]string {
	out := map[string]string{}
	for name := range values {
		out[name] = values.Get(name)
	}
	return out
}

// doAct does an act and leads back, with the answer at the top of the page.
func (c *Console) doAct(w http.ResponseWriter, r *request) error {
	if err := r.ParseForm(); err != nil {
		return problemf(http.StatusBadRequest, "The form cannot be read: %v.", err)
	}
	v, on, err := targetOf(r)
	if err == nil {
		err = c.mayAct(r, v.Name)
	}
	if err != nil {
		return err
	}
	refuse := func(err error) error {
		b := actBody{Verb: v, On: on, Values: first(r.PostForm), Reason: r.PostForm.Get("reason"), Error: err.Error()}
		c.showAct(w, r, http.StatusUnprocessableEntity, b)
		return nil
	}
	req, err := v.Parse(r.PostForm, c.options.Zone)
	if err != nil {
		return refuse(err)
	}
	target := v.For(on)
	req.Job, req.Instance = target.Job, target.Instance
	ctx, cancel := call(r)
	defer cancel()
	done, err := v.DoByHistory(ctx, c.op.As(r.user.Name, r.PostForm.Get("reason")), req, look.FindFailed(c.options.History))
	attrs := []any{"act", v.Name, "on", on, "by", r.user.Name}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	c.options.Logger.Info("an act by the console", attrs...)
	if err != nil {
		switch {
		case errors.Is(err, acts.ErrHistory): // whose text may name the database
			return problemf(http.StatusServiceUnavailable, "The history does not answer, and the records do not name what failed. Name the shards, or try again.")
		case isUnreachable(err):
			return err
		}
		return refuse(err)
	}
	c.feed.catchUp(ctx, target.Job)
	c.statuses.dropAll() // an act on the group or an instance changes jobs too
	back := backOf(v.On, on)
	switch {
	case v.Name == "delete":
		back = "definitions"
	case v.Name == "forget", v.Name == "retire" && c.isGone(on):
		back = ""
	}
	w.Header().Set("Location", resolve(r, rootOf(r)+back)+"?said="+c.said.keep(done))
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// isGone reports whether a job has been deleted.
func (c *Console) isGone(job string) bool {
	_, err := c.status(job)
	return errors.Is(err, operator.ErrUnknownJob)
}

// resolve returns the path of an address relative to that of the request, with the prefix at which the console is mounted.
func resolve(r *request, address string) string {
	base, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return address
	}
	ref, err := url.Parse(address)
	if err != nil {
		return address
	}
	return base.ResolveReference(ref).EscapedPath()
}

// actLinks returns the acts on a target that the user may do.
func (c *Console) actLinks(r *request, on acts.Target, prefix string) (links []actLink) {
	for i := range acts.Verbs {
		v := &acts.Verbs[i]
		if v.On != on || c.mayAct(r, v.Name) != nil {
			continue
		}
		name := v.Name
		if on == acts.OnGroup {
			name = nameOnGroup(v)
		}
		links = append(links, actLink{name, v.Short, prefix + v.Name, v.Origin})
	}
	return links
}

// actOf returns the form of the act that an answer advises, with its fields set. It is empty if the user may not do it. Job and root are the
// relative addresses of the directory of the job and of the fleet's page.
func (c *Console) actOf(r *request, a *view.Answer, job, root string) (link, name string) {
	switch a.Verb {
	case "Disable":
		link, name = root+instanceLink(a.Instance)+"/act/drain", "drain"
	case "ResumeGroup":
		link, name = root+"act/resume", "resume"
	default:
		name = strings.ToLower(a.Verb)
		v, ok := acts.Find(name, acts.OnJob)
		if !ok { // no act helps, or only the history
			return "", ""
		}
		q := url.Values{}
		for _, f := range v.Fields {
			switch f.Name {
			case "shards":
				q.Set("shards", view.Ranges(a.Shards))
			case "fire":
				q.Set("fire", a.Fire.UTC().Format(time.RFC3339Nano))
			}
		}
		link = job + "act/" + name + "?" + q.Encode()
	}
	if c.mayAct(r, name) != nil {
		return "", ""
	}
	return link, name
}

// said keeps the answers of acts until the page after the act has shown them. An address names an answer, and does not have its text,
// or a link could put words into the console's mouth.
type said struct {
	mu      sync.Mutex
	answers map[string]string
	order   []string
}

// saidMost bounds the answers that are kept.
const saidMost = 256

// keep keeps an answer and returns its name.
func (s *said) keep(d view.Done) string {
	text := capitalize(d.Text) + "."
	if d.Note != "" {
		text += " " + d.Note
	}
	name := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers == nil {
		s.answers = map[string]string{}
	}
	s.answers[name] = text
	s.order = append(s.order, name)
	if len(s.order) > saidMost {
		delete(s.answers, s.order[0])
		s.order = s.order[1:]
	}
	return name
}

func (s *said) of(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers[name]
}

func capitalize(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
