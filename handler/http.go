package handler

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
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
)

const (
	defaultHTTPTimeout = time.Minute
	// maxDrain bounds how much of a response is read so that the connection can be used again.
	maxDrain = 256 << 10
)

// Request describes the request of [HTTP]. Only URL is required.
type Request struct {
	// Method is the method. Empty means POST, since a run is expected to have an effect; GET
	// may be answered from a cache.
	Method string
	// URL is a template. Scheme, host and port must be literal. A value in the path is one
	// segment or part of one, a value in the query the name or value of one parameter, or part
	// of it; all other bytes than letters, digits and "-._~" are escaped. A run fails for good
	// if a value has a slash or backslash in the path, or makes a segment empty, "." or "..".
	// Of the template language there are only values: {{.Shard}}, {{.FireTime.Format "2006"}}.
	URL string
	// Header holds header fields by name, with templates as values. A run whose parameters
	// bring a line break or another control character into a field fails for good.
	// Idempotency-Key is Run.Key unless it is set here, the same for all attempts and for the
	// retries of an operator.
	Header map[string]string
	// Body is a template. Nothing in it is escaped: write parameters as JSON with
	// {{json .ShardParam}}, and the whole run with {{json .}}. Unless Header has a
	// Content-Type, it is application/json.
	Body string
	// OK are the statuses that mean success. Nil means 200 to 299.
	OK Statuses
	// Permanent are the statuses after which the run is not retried. Nil means 300 to 499 but
	// 408, 425 and 429. After others the run is retried if the job has retries, and not before the
	// time of the header Retry-After, which counts up to an hour.
	Permanent Statuses
	// Timeout bounds the request until the response has been read. Zero means a minute; a
	// negative value means no bound but Job.Timeout. The server may continue its work: set it
	// above what that takes.
	Timeout time.Duration
	// TLS configures connections, such as for certificates of clients. Nil means Go's default.
	TLS *tls.Config
	// Client sends the requests, by a copy with the rule for redirects that HTTP describes, in
	// addition to its own CheckRedirect. It excludes TLS. Nil means the connections of
	// http.DefaultTransport, or of one like it if TLS is set.
	Client *http.Client
}

// Statuses are ranges of HTTP statuses, both ends included: {{200, 299}, {409, 409}}.
type Statuses [][2]int

// Status returns the statuses from first to last.
func Status(first, last int) Statuses { return Statuses{{first, last}} }

func (s Statuses) has(code int) bool {
	return slices.ContainsFunc(s, func(r [2]int) bool { return r[0] <= code && code <= r[1] })
}

func (s Statuses) check(field string) error {
	for _, r := range s {
		if r[0] < 200 || r[1] > 599 || r[0] > r[1] {
			return fieldError(field, fmt.Errorf("%v is not a range within 200 to 599", r))
		}
	}
	return nil
}

var (
	defaultOK        = Status(200, 299)
	defaultPermanent = Statuses{{300, 407}, {409, 424}, {426, 428}, {430, 499}}
)

// HTTP returns a handler that sends a request for each run. It copies r. Register reports the
// problems of r.
//
// A response whose status is not in OK fails the run with a [*StatusError]. So does a redirect
// to another host, to another port, from https to http, or to another method: it is not followed,
// and counts by its own status. The end of the run's context cancels the request.
func HTTP(r Request) executor.Handler {
	c := &call{request: r}
	c.request.Header = maps.Clone(r.Header)
	c.request.OK, c.request.Permanent = slices.Clone(r.OK), slices.Clone(r.Permanent)
	c.parse()
	return c
}

// call is the handler of HTTP.
type call struct {
	request Request
	url     *urlTemplate
	header  map[string]*template.Template
	body    *template.Template
	client  *http.Client
	invalid []error
}

// StatusError is the error of a run whose request got a status that does not mean success.
type StatusError struct {
	Code int
	Body string // the first 4 KiB of the response
}

// Error returns the status and the first line of the body.
func (e *StatusError) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("status %d %s", e.Code, http.StatusText(e.Code)))
	if e.Code < 400 && e.Code >= 300 {
		text += ", redirect not followed"
	}
	return addExcerpt(text, firstLine(e.Body))
}

// Check is described in executor.Checker.
func (c *call) Check() error { return errors.Join(c.invalid...) }

func (c *call) parse() {
	r := &c.request
	r.Method = cmp.Or(r.Method, http.MethodPost)
	if r.OK == nil {
		r.OK = defaultOK
	}
	if r.Permanent == nil {
		r.Permanent = defaultPermanent
	}
	var err error
	if c.url, err = parseURL(r.URL); err != nil {
		c.report(fieldError("URL", err))
	}
	if !httprules.IsToken(r.Method) {
		c.report(fieldError("Method", fmt.Errorf("%q is not a method", r.Method)))
	}
	c.parseHeader()
	if c.body, err = parseTemplate("Body", r.Body); err != nil {
		c.report(err)
	}
	c.report(r.OK.check("OK"))
	c.report(r.Permanent.check("Permanent"))
	if r.TLS != nil && r.Client != nil {
		c.report(errors.New("TLS and Client exclude each other"))
	}
	c.client = newClient(*r)
}

func (c *call) report(err error) {
	if err != nil {
		c.invalid = append(c.invalid, err)
	}
}

func (c *call) parseHeader() {
	c.header = map[string]*template.Template{}
	for _, name := range slices.Sorted(maps.Keys(c.request.Header)) {
		field := http.CanonicalHeaderKey(name)
		t, err := parseTemplate("Header "+name, c.request.Header[name])
		switch {
		case err != nil:
			c.report(err)
		case !httprules.IsToken(name):
			c.report(fieldError("Header", fmt.Errorf("%q is not the name of a field", name)))
		case slices.Contains([]string{"Host", "Content-Length", "Transfer-Encoding", "Trailer"}, field):
			c.report(fieldError("Header", fmt.Errorf("%s follows from URL and Body", name)))
		case c.header[field] != nil:
			c.report(fieldError("Header", fmt.Errorf("%s is given twice", name)))
		default:
			c.header[field] = t
		}
	}
}

func newClient(r Request) *http.Client {
	client := http.Client{}
	if r.Client != nil {
		client = *r.Client
	}
	if r.TLS != nil {
		transport, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			transport = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
		}
		transport = transport.Clone()
		transport.TLSClientConfig = containTLS(r.TLS.Clone())
		client.Transport = transport
	}
	also := client.CheckRedirect
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) >= httprules.MaxRedirects || req.Method != via[0].Method || !httprules.IsSameServer(via[0].URL, req.URL) {
			return http.ErrUseLastResponse
		}
		if also != nil {
			return also(req, via)
		}
		return nil
	}
	return &client
}

// containTLS has the functions of c fail that panic: package net/http calls them in a goroutine of its own, in which a panic
// would end the process.
func containTLS(c *tls.Config) *tls.Config {
	if f := c.GetClientCertificate; f != nil {
		c.GetClientCertificate = func(i *tls.CertificateRequestInfo) (cert *tls.Certificate, err error) {
			err = contain.CallApart("GetClientCertificate", func() (err error) { cert, err = f(i); return err })
			return cert, err
		}
	}
	if f := c.VerifyPeerCertificate; f != nil {
		c.VerifyPeerCertificate = func(raw [][]byte, chains [][]*x509.Certificate) error {
			return contain.CallApart("VerifyPeerCertificate", func() error { return f(raw, chains) })
		}
	}
	if f := c.VerifyConnection; f != nil {
		c.VerifyConnection = func(s tls.ConnectionState) error {
			return contain.CallApart("VerifyConnection", func() error { return f(s) })
		}
	}
	return c
}

// Handle sends the request for a run.
func (c *call) Handle(ctx context.Context, r *executor.Run) error {
	if c.invalid != nil {
		return executor.Permanent(errors.Join(c.invalid...))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	bounded := ctx
	timeout := cmp.Or(c.request.Timeout, defaultHTTPTimeout)
	if timeout > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	req, err := c.newRequest(bounded, viewOf(r))
	if err != nil {
		return executor.Permanent(err)
	}
	err = c.send(req)
	// Neither path nor query are named, as they may have secrets.
	what := req.Method + " " + req.URL.Host
	var status *StatusError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &status):
		return c.classify(fmt.Errorf("%s: %w", what, err), status.Code)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	case bounded.Err() != nil:
		return fmt.Errorf("%s: no whole response within %v: %w", what, timeout, context.DeadlineExceeded)
	}
	var failed *url.Error // which names the whole URL
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// newRequest returns the request for a run. Another attempt would result in the same error.
func (c *call) newRequest(ctx context.Context, v view) (*http.Request, error) {
	target, err := c.url.render(v)
	if err != nil {
		return nil, fieldError("URL", err)
	}
	body, err := render(c.body, v)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, c.request.Method, target, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Idempotency-Key", visible(v.Key))
	for name, t := range c.header {
		value, err := render(t, v)
		if err != nil {
			return nil, err
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return nil, fieldError("Header", fmt.Errorf("the value of %s has a line break or another control character", name))
		}
		req.Header.Set(name, value)
	}
	return req, nil
}

// visible returns a key in visible ASCII, other keys for other keys. Most stay as they are.
func visible(key string) string {
	var b strings.Builder
	for i := range len(key) {
		if c := key[i]; c > ' ' && c < 0x7f && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// send returns nil after a response that means success, and a *StatusError after another one, which may
// have a delay.
func (c *call) send(req *http.Request) error {
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	start, err := io.ReadAll(io.LimitReader(resp.Body, maxTail))
	if err == nil {
		_, err = io.CopyN(io.Discard, resp.Body, maxDrain-maxTail)
	}
	if c.request.OK.has(resp.StatusCode) {
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read response: %w", err)
		}
		return nil
	}
	failed := &StatusError{Code: resp.StatusCode, Body: strings.ToValidUTF8(string(start), "")}
	if after := httprules.RetryAfter(resp.Header, time.Now()); after > 0 {
		return executor.RetryAfter(after, failed)
	}
	return failed
}

// classify marks the error of a status after which the run is not retried.
func (c *call) classify(err error, status int) error {
	if c.request.Permanent.has(status) {
		return executor.Permanent(err)
	}
	return err
}
