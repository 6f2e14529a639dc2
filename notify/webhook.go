package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/httprules"
	"github.com/rota-dev/rota/internal/secret"
)

// WebhookOptions are the settings of a Webhook. URL or URLFile is required.
type WebhookOptions struct {
	// URL is the address. That of a chat system often is a secret: then give it by URLFile. No error or log line names more of it
	// than scheme, host and port.
	URL string
	// URLFile is a file that holds the address. It is read for each message, as are the files of HeaderFiles.
	URLFile string
	// Method is the method. Empty means POST.
	Method string
	// Header holds header fields by name.
	Header map[string]string
	// HeaderFiles holds the files of header fields whose values are secrets, by name. Line breaks at the end of a file are removed.
	HeaderFiles map[string]string
	// Body is a text/template of a Message. Its function json returns a value as JSON, such as {{json .Text}}. Empty means the whole
	// message as JSON. Unless Header has a Content-Type, it is application/json.
	Body string
	// TLS configures connections. Nil means Go's default.
	TLS *tls.Config
	// ReadFile reads the files. Nil means os.ReadFile.
	ReadFile func(path string) ([]byte, error)
}

const (
	// maxAnswer is how much of a response an error has.
	maxAnswer = 200
	// maxDrain bounds how much of a response is read so that the connection can be used again.
	maxDrain = 64 << 10
	// maxBody bounds the body of a request.
	maxBody = 1 << 20
)

// Webhook returns a receiver that sends an HTTP request for each message.
//
// A status of 200 to 299 means that the message is accepted. 408, 425, 429 and those from 500 on are tried again, not before the time
// of the header Retry-After; any other status means that the receiver refuses the message. A redirect to another host, to another port, from
// https to http, or to another method is not followed. The header Idempotency-Key is the ID of the message, the same for each repetition.
func Webhook(o WebhookOptions) (Receiver, error) {
	w := &webhook{o: o, secrets: secrets{read: o.ReadFile}}
	w.o.Method = cmp.Or(o.Method, http.MethodPost)
	w.o.Header, w.o.HeaderFiles = maps.Clone(o.Header), maps.Clone(o.HeaderFiles)
	if err := w.check(); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	w.client = &http.Client{CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) >= httprules.MaxRedirects || req.Method != via[0].Method || !httprules.IsSameServer(via[0].URL, req.URL) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	if o.TLS != nil {
		transport, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			transport = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
		}
		transport = transport.Clone()
		transport.TLSClientConfig = o.TLS.Clone()
		w.client.Transport = transport
	}
	return w, nil
}

type webhook struct {
	o       WebhookOptions
	secrets secrets
	client  *http.Client
	body    *template.Template // nil: the message as JSON
}

// check parses the template and returns all problems of the options but those of files.
func (w *webhook) check() error {
	var errs []error
	switch {
	case (w.o.URL == "") == (w.o.URLFile == ""):
		errs = append(errs, errors.New("URL: needs one of URL and URLFile"))
	case w.o.URL != "":
		if _, err := parseAddress(w.o.URL); err != nil {
			errs = append(errs, wrongf("URL", "%w", err))
		}
	}
	if !httprules.IsToken(w.o.Method) {
		errs = append(errs, wrongf("Method", "%.100q is not a method", w.o.Method))
	}
	seen := map[string]bool{}
	for _, fields := range []map[string]string{w.o.Header, w.o.HeaderFiles} {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			field := http.CanonicalHeaderKey(name)
			switch {
			case !httprules.IsToken(name):
				errs = append(errs, wrongf("Header", "%.100q is not the name of a field", name))
			case slices.Contains([]string{"Host", "Content-Length", "Transfer-Encoding", "Trailer"}, field):
				errs = append(errs, wrongf("Header", "%s follows from URL and Body", name))
			case seen[field]:
				errs = append(errs, wrongf("Header", "%s is given twice", name))
			}
			seen[field] = true
		}
	}
	for name, value := range w.o.Header {
		if hasControl(value) {
			errs = append(errs, wrongf("Header", "the value of %.100q has a line break or another control character", name))
		}
	}
	if w.o.Body != "" {
		var err error
		if w.body, err = parseBody(w.o.Body); err == nil {
			_, err = renderBody(w.body, sampleMessage("namespace", "group", time.Unix(0, 0)))
		}
		if err != nil {
			errs = append(errs, wrongf("Body", "%w", err))
		}
	}
	return errors.Join(errs...)
}

// parseAddress parses the URL of a webhook. Errors do not have it: it may be a secret.
func parseAddress(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("does not begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("has no host")
	}
	return u, nil
}

func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

func parseBody(text string) (*template.Template, error) {
	return template.New("body").Option("missingkey=error").Funcs(template.FuncMap{"json": toJSON}).Parse(text)
}

// toJSON returns a value as JSON, for templates. Unlike json.Marshal, it leaves < and & as they are.
func toJSON(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// renderBody returns the body of a message. Code of templates is that of users.
func renderBody(t *template.Template, m Message) (body []byte, err error) {
	if t == nil {
		text, err := toJSON(m)
		return []byte(text), err
	}
	out := &boundedBuffer{most: maxBody}
	err = contain.Call("template", func() error { return t.Execute(out, m) })
	return out.b.Bytes(), err
}

// boundedBuffer is a buffer that refuses more than most bytes.
type boundedBuffer struct {
	b    bytes.Buffer
	most int
}

// Write implements io.Writer.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.b.Len()+len(p) > b.most {
		return 0, fmt.Errorf("more than %d bytes", b.most)
	}
	return b.b.Write(p)
}

// Deliver sends a request.
func (w *webhook) Deliver(ctx context.Context, m Message) error {
	_, err := w.deliver(ctx, m)
	return err
}

// deliver sends a request, and returns the answer.
func (w *webhook) deliver(ctx context.Context, m Message) (answer string, err error) {
	mask := &secret.Masker{}
	answer, err = w.send(ctx, m, mask)
	return mask.Mask(answer), mask.Error(err)
}

func (w *webhook) send(ctx context.Context, m Message, mask *secret.Masker) (answer string, err error) {
	req, err := w.newRequest(ctx, m, mask)
	if err != nil {
		return "", err
	}
	where := req.Method + " " + req.URL.Scheme + "://" + req.URL.Host
	resp, err := w.client.Do(req)
	if err != nil {
		var failed *url.Error // which names the whole URL
		if errors.As(err, &failed) {
			err = failed.Err
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("%s: %w", where, err)
	}
	defer resp.Body.Close()
	start, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
	answer = strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	if text := strings.TrimSpace(inLine(mask.Mask(string(start)))); text != "" { // a secret may cross the cut
		answer += ": " + cutTo(text, maxAnswer)
	}
	return answer, classify(where, answer, resp)
}

// classify returns the error of a response, nil if it means that the message is accepted.
func classify(where, answer string, resp *http.Response) error {
	code := resp.StatusCode
	if code >= 200 && code <= 299 {
		return nil
	}
	if code >= 300 && code <= 399 {
		answer += ", redirect not followed"
	}
	err := fmt.Errorf("%s: status %s", where, answer)
	if code < 500 && !slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}, code) {
		return executor.Permanent(err)
	}
	if after := httprules.RetryAfter(resp.Header, time.Now()); after > 0 {
		return executor.RetryAfter(after, err)
	}
	return err
}

// newRequest returns the request for a message. It adds the secrets to mask.
func (w *webhook) newRequest(ctx context.Context, m Message, mask *secret.Masker) (*http.Request, error) {
	address := w.o.URL
	if w.o.URLFile != "" {
		var err error
		if address, err = w.secrets.readFile(w.o.URLFile); err != nil {
			return nil, fmt.Errorf("read the file of the URL: %w", err)
		}
	}
	u, err := parseAddress(address)
	if err != nil {
		return nil, fmt.Errorf("the URL %w", err)
	}
	maskURL(mask, address, u)
	body, err := renderBody(w.body, m)
	if err != nil {
		return nil, executor.Permanent(fmt.Errorf("body: %w", err)) // another attempt would result in the same
	}
	req, err := http.NewRequestWithContext(ctx, w.o.Method, address, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the URL is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", m.ID)
	req.Header.Set("User-Agent", "rota")
	for name, value := range w.o.Header {
		req.Header.Set(name, value)
	}
	for name, path := range w.o.HeaderFiles {
		value, err := w.secrets.readFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the file of header %s: %w", name, err)
		}
		mask.Add(value)
		if _, token, ok := strings.Cut(value, " "); ok { // the credentials after a scheme such as Bearer
			mask.Add(token)
		}
		if hasControl(value) {
			return nil, fmt.Errorf("the value of header %s has a line break or another control character", name)
		}
		req.Header.Set(name, value)
	}
	return req, nil
}
