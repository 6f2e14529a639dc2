package jobsfile

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/rota-dev/rota/internal/secret"
	"github.com/rota-dev/rota/notify"
)

// notifySpec is the key notify as it is written.
type notifySpec struct {
	Receivers               map[string]receiverSpec
	Default                 *[]string
	After, Quiet, LateAfter time.Duration
	HideErrors              bool
	Console                 string
}

// receiverSpec is a receiver as it is written. Exactly one field is set.
type receiverSpec struct {
	Webhook *webhookSpec `json:",omitempty"`
	Mail    *mailSpec    `json:",omitempty"`
}

type webhookSpec struct {
	URL    value
	Method string
	Header map[string]value
	Body   string
	TLS    TLSFiles
}

type mailSpec struct {
	Server, From           string
	To                     []string
	Username, PasswordFile string
	ImplicitTLS, Insecure  bool
	TLS                    TLSFiles
}

// Notify has the settings of messages about the jobs of a file.
type Notify struct {
	// Options are those of a notifier. Receivers is empty if the file has no receiver.
	Options notify.Options
	// Digest identifies the settings, without secrets.
	Digest string
}

// notifyFields are the keys of notify.
func notifyFields() []field[notifySpec] {
	type n = notifySpec
	return []field[n]{
		key("receivers", lenient(mapOf("name", receiverShape())), func(v *n) *map[string]receiverSpec { return &v.Receivers }, "", "The receivers by name.").require(),
		key("default", pointer(receiverNamesShape()), func(v *n) **[]string { return &v.Default }, "all", "The receivers of jobs without a key `notify`. `[]` means none."),
		key("after", duration(time.Second), func(v *n) *time.Duration { return &v.After }, "1m", "How long a state must last until it is reported."),
		key("quiet", duration(time.Second), func(v *n) *time.Duration { return &v.Quiet }, "15m", "The least time between a message about a job and the next one, but for its recovery."),
		key("late_after", duration(time.Second), func(v *n) *time.Duration { return &v.LateAfter }, "1m", "How long a fire may be due until its job is late."),
		key("hide_errors", boolean(), func(v *n) *bool { return &v.HideErrors }, "`false`", "Leaves the errors of failed runs out of messages."),
		key("console", text(), func(v *n) *string { return &v.Console }, "none", "The address of a console, of which messages have links."),
	}
}

// notifyGuesses are keys that users try in notify.
var notifyGuesses = map[string]string{
	"receiver": "receivers", "channels": "receivers", "webhook": "receivers: {NAME: {webhook: ...}}", "mail": "receivers: {NAME: {mail: ...}}", "email": "receivers: {NAME: {mail: ...}}",
	"slack": "receivers: {NAME: {webhook: ...}}", "for": "after", "delay": "after", "interval": "quiet", "repeat_interval": "quiet", "defaults": "default",
}

func notifyShape() shape[notifySpec] { return lenient(object("map", notifyGuesses, notifyFields())) }

// lenient is a value of which the sound parts are kept if it has problems, so that these are not reported again as missing.
func lenient[V any](s shape[V]) shape[V] {
	return shape[V]{s.text, s.schema, func(r *reader, n *yaml.Node) (V, bool) {
		v, _ := s.read(r, n)
		return v, true
	}}
}

// receiverFields are the keys of a receiver.
func receiverFields() []field[receiverSpec] {
	type t = receiverSpec
	return []field[t]{
		key("webhook", pointer(lenient(webhookShape())), func(v *t) **webhookSpec { return &v.Webhook }, "", "A request for each message."),
		key("mail", pointer(lenient(object("map", mailGuesses, mailFields()))), func(v *t) **mailSpec { return &v.Mail }, "", "A mail for each message."),
	}
}

func receiverShape() shape[receiverSpec] {
	s := object("receiver", map[string]string{"http": "webhook", "url": "webhook: {url: ...}", "slack": "webhook", "smtp": "mail", "email": "mail"}, receiverFields())
	read := s.read
	s.read = func(r *reader, n *yaml.Node) (receiverSpec, bool) {
		v, ok := read(r, n)
		if ok && (v.Webhook == nil) == (v.Mail == nil) {
			r.report(n, "needs one of webhook and mail")
			ok = false
		}
		return v, ok
	}
	s.schema["minProperties"], s.schema["maxProperties"] = 1, 1
	return s
}

// webhookFields are the keys of a webhook.
func webhookFields() []field[webhookSpec] {
	type t = webhookSpec
	return []field[t]{
		key("url", secretShape(), func(v *t) *value { return &v.URL }, "",
			"The address. That of a chat system is a secret: `{from_file: PATH}`, which is read for each message.").require(),
		key("method", text(), func(v *t) *string { return &v.Method }, "`POST`", "The method."),
		key("header", mapOf("name", secretShape()), func(v *t) *map[string]value { return &v.Header }, "none",
			"Header fields: a text, or `{from_file: PATH}`, which is read for each message."),
		key("body", text(), func(v *t) *string { return &v.Body }, "the message as JSON", "The body, a template: `{\"text\": {{json .Text}}}`."),
		key("tls", tlsShape(tlsFields()), func(v *t) *TLSFiles { return &v.TLS }, "the system's authorities", "Certificates."),
	}
}

func webhookShape() shape[webhookSpec] {
	return object("map", map[string]string{"headers": "header", "uri": "url", "address": "url", "data": "body", "payload": "body", "template": "body"}, webhookFields())
}

// mailFields are the keys of a mail.
func mailFields() []field[mailSpec] {
	type t = mailSpec
	return []field[t]{
		key("server", text(), func(v *t) *string { return &v.Server }, "", "The mail server, as HOST or HOST:PORT. The default port is 587, or 465 with `implicit_tls`.").require(),
		key("from", text(), func(v *t) *string { return &v.From }, "", "The address of the sender.").require(),
		key("to", namesShape(), func(v *t) *[]string { return &v.To }, "", "The addresses.").require(),
		key("username", text(), func(v *t) *string { return &v.Username }, "none", "The user, who logs in over TLS only."),
		key("password_file", text(), func(v *t) *string { return &v.PasswordFile }, "none", "A file that holds the password."),
		key("implicit_tls", boolean(), func(v *t) *bool { return &v.ImplicitTLS }, "`false`", "The connection begins with TLS. Otherwise the server must offer STARTTLS, unless it is on a loopback address."),
		key("insecure", boolean(), func(v *t) *bool { return &v.Insecure }, "`false`", "Permits a connection without TLS to another host."),
		key("tls", tlsShape(tlsFields()), func(v *t) *TLSFiles { return &v.TLS }, "the system's authorities", "Certificates."),
	}
}

var mailGuesses = map[string]string{
	"host": "server", "smtp": "server", "address": "server", "port": "server: HOST:PORT", "user": "username", "password": "password_file", "password_env": "password_file",
	"sender": "from", "recipients": "to", "starttls": "STARTTLS, which is used if insecure is not set", "ssl": "implicit_tls",
}

// secretShape is a text, or the file that holds it. A variable of the environment would be inherited by programs.
func secretShape() shape[value] {
	inline := convert(scalar(), func(text string) value { return value{Text: text} })
	elsewhere := object("map", map[string]string{"file": "from_file", "from_env": "from_file", "env": "from_file", "secret": "from_file"}, []field[value]{
		key("from_file", text(), func(v *value) *string { return &v.FromFile }, "", "A file that holds the text. A line break at its end is removed.").require(),
	})
	return either("text or `{from_file: PATH}`", isScalar, inline, elsewhere)
}

// receiverNamesShape is a list of names, which may be empty.
func receiverNamesShape() shape[[]string] {
	s := listOf(text())
	read := s.read
	return shape[[]string]{"list of receivers", map[string]any{"type": "array", "items": text().schema}, func(r *reader, n *yaml.Node) ([]string, bool) {
		if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
			return []string{}, true
		}
		return read(r, n)
	}}
}

// notify makes the receivers of a file, and reports the problems of their settings.
func (b *builder) notify(s *notifySpec, jobs []jobSpec) {
	b.checkReceiverNames("notify.default", s.Default, s)
	o := notify.Options{
		After: s.After, Quiet: s.Quiet, LateAfter: s.LateAfter, HideErrors: s.HideErrors, Console: s.Console,
		Receivers: map[string]notify.Receiver{}, Jobs: map[string][]string{},
	}
	if s.Default != nil {
		o.Default = *s.Default
	}
	for i := range jobs {
		if names := jobs[i].Notify; names != nil {
			b.checkReceiverNames(joinPath(jobs[i].path, "notify"), names, s)
			o.Jobs[jobs[i].name] = *names
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Receivers)) {
		path := joinPath("notify.receivers", name)
		if err := notify.CheckName(name); err != nil {
			b.reportAt(path, b.places[path].key, "%v", err)
		}
		if s := s.Receivers[name]; s.Webhook != nil && s.Mail != nil {
			continue // which has been reported
		}
		if to := b.receiver(path, s.Receivers[name]); to != nil {
			o.Receivers[name] = to
		}
	}
	if err := notify.CheckConsole(s.Console); err != nil {
		b.reportAt("notify.console", b.places["notify.console"].value, "%v", err)
	}
	content, err := json.Marshal(struct {
		Spec *notifySpec
		Jobs map[string][]string
	}{s, o.Jobs})
	if err != nil {
		panic(err) // cannot fail: texts and numbers
	}
	b.file.Notify = Notify{Options: o, Digest: shortDigest(content)}
}

// LoadNotify reads the settings of messages of a file: its key notify, which it must have, and those of its jobs. Other keys are not read,
// so that a process without jobs can have a copy of a jobs file, or a file with that key alone. The error is a *Problems that has all of them.
func LoadNotify(name string, content []byte, host Host) (*File, error) {
	r := &reader{places: map[string]place{}, schemes: host.Schemes}
	f := readNotify(r, content, host)
	if len(r.problems) > 0 {
		return nil, &Problems{File: name, All: sortProblems(r.problems)}
	}
	return f, nil
}

func readNotify(r *reader, content []byte, host Host) *File {
	root := parse(r, content)
	if root == nil || !r.refuseIndirection(root) {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		r.report(root, "the file is %s, not a map with the key notify", describeNode(root))
		return nil
	}
	var s fileSpec
	fields := fileFields()
	for _, p := range r.entries(root) {
		switch p.key.Value {
		case "namespace", "group", "notify":
			r.within(p.key.Value, p, func() { readField(r, p, fields, fileGuesses, &s) })
		case "jobs":
			r.within("jobs", p, func() { s.Jobs = readReceiversOfJobs(r, p.value) })
		}
	}
	if !has(root, "notify") {
		r.report(root, "the file needs the key notify")
		return nil
	}
	b := builder{reader: r, host: host, noted: map[string]bool{}, file: &File{Namespace: s.Namespace, Group: s.Group}}
	b.notify(&s.Notify, s.Jobs)
	return b.file
}

// readReceiversOfJobs reads the keys notify of jobs.
func readReceiversOfJobs(r *reader, jobs *yaml.Node) (all []jobSpec) {
	if jobs.Kind != yaml.MappingNode {
		r.report(jobs, "is %s, not a map from names to jobs", describeNode(jobs))
		return nil
	}
	fields := jobFields()
	for _, job := range r.entries(jobs) {
		r.within(joinPath(r.path, job.key.Value), job, func() {
			s := jobSpec{name: job.key.Value, path: r.path, at: job.key}
			if job.value.Kind != yaml.MappingNode {
				r.report(job.value, "is %s, not a map with keys such as notify", describeNode(job.value))
				return
			}
			for _, p := range r.entries(job.value) {
				if p.key.Value == "notify" {
					r.within(joinPath(r.path, "notify"), p, func() { readField(r, p, fields, jobGuesses, &s) })
				}
			}
			all = append(all, s)
		})
	}
	return all
}

// checkReceiverNames reports names of receivers that the file does not have.
func (b *builder) checkReceiverNames(path string, names *[]string, s *notifySpec) {
	_, some := b.places["notify.receivers"]
	if _, given := b.places["notify"]; names == nil || given && !some {
		return
	}
	for i, name := range *names {
		if _, found := s.Receivers[name]; found || name == "" && b.hasProblemBelow(path) {
			continue
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		hint := ""
		if instead := suggest(name, slices.Sorted(maps.Keys(s.Receivers))); instead != "" {
			hint = fmt.Sprintf(": is it %s?", instead)
		}
		b.reportAt(at, b.places[at].value, "there is no receiver %.100q in notify.receivers%s", name, hint)
	}
}

// receiver returns a receiver, or reports its problems and returns nil.
func (b *builder) receiver(path string, s receiverSpec) notify.Receiver {
	var to notify.Receiver
	var err error
	switch {
	case s.Webhook != nil:
		path += ".webhook"
		o := notify.WebhookOptions{
			URL: s.Webhook.URL.Text, URLFile: s.Webhook.URL.FromFile, Method: s.Webhook.Method, Header: map[string]string{}, HeaderFiles: map[string]string{},
			Body: s.Webhook.Body, TLS: b.receiverTLS(path, s.Webhook.TLS), ReadFile: b.host.readSecret(),
		}
		b.checkSecretFile(path+".url", s.Webhook.URL.FromFile)
		for name, v := range s.Webhook.Header {
			if v.FromFile == "" {
				o.Header[name] = v.Text
				continue
			}
			o.HeaderFiles[name] = v.FromFile
			b.checkSecretFile(joinPath(path+".header", name), v.FromFile)
		}
		to, err = notify.Webhook(o)
	case s.Mail != nil:
		path += ".mail"
		b.checkSecretFile(path+".password_file", s.Mail.PasswordFile)
		to, err = notify.Mail(notify.MailOptions{
			Server: s.Mail.Server, From: s.Mail.From, To: s.Mail.To, Username: s.Mail.Username, PasswordFile: s.Mail.PasswordFile,
			ImplicitTLS: s.Mail.ImplicitTLS, Insecure: s.Mail.Insecure, TLS: b.receiverTLS(path, s.Mail.TLS), ReadFile: b.host.readSecret(),
		})
	default:
		return nil
	}
	if err == nil {
		return to
	}
	count := len(b.problems)
	for _, err := range unjoin(errors.Unwrap(err)) {
		field, rule, _ := strings.Cut(err.Error(), ": ")
		at := path + "." + strings.ToLower(field)
		p, found := b.places[at]
		if !found {
			at, p = path, b.places[path]
		}
		if hasProblemBelow(b.problems[:count], at) { // a part that is missing may be the one that has a problem
			continue
		}
		b.reportAt(at, p.value, "%s", strings.NewReplacer("PasswordFile", "password_file", "ImplicitTLS", "implicit_tls").Replace(rule))
	}
	return nil
}

func (b *builder) receiverTLS(path string, files TLSFiles) *tls.Config {
	config, err := files.load(b.host)
	if err != nil {
		b.reportAt(path+".tls", b.places[path+".tls"].value, "%v", err)
	}
	return config
}

// checkSecretFile reports a file that cannot be read, and notes a secret that is too short to be masked.
func (b *builder) checkSecretFile(path, file string) {
	if file == "" || b.host.ReadFile == nil {
		return
	}
	text, err := b.host.secret(value{FromFile: file})
	if err != nil {
		b.reportAt(path, b.places[path].value, "%v", err)
		return
	}
	if !b.host.Secrets.Add(text) {
		b.file.Warnings = append(b.file.Warnings, fmt.Sprintf("%s has a value of fewer than %d bytes, which is not masked in logs and errors", path, secret.MinLength))
	}
}

// readSecret returns a function that reads a file with a secret, and has its content masked in texts from then on; nil if the host reads no files.
func (h Host) readSecret() func(path string) ([]byte, error) {
	if h.ReadFile == nil {
		return nil
	}
	return func(path string) ([]byte, error) {
		text, err := h.lookup(value{FromFile: path})
		return []byte(text), err
	}
}
