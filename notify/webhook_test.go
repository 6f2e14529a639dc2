package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
)

// request is a request as a server received it.
type request struct {
	method, path string
	header       http.Header
	body         string
}

// hook is a server that answers as answer does.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	got    []request
	answer http.HandlerFunc
}

func newHook(t *testing.T, secure bool, answer http.HandlerFunc) *hook {
	t.Helper()
	h := &hook{answer: answer}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		h.got = append(h.got, request{r.Method, r.URL.RequestURI(), r.Header, string(body)})
		h.mu.Unlock()
		if h.answer != nil {
			h.answer(w, r)
		}
	})
	if secure {
		h.Server = httptest.NewTLSServer(handler)
	} else {
		h.Server = httptest.NewServer(handler)
	}
	t.Cleanup(h.Close)
	return h
}

func (h *hook) requests() []request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.got
}

// pool returns the authority of a server.
func (h *hook) pool() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(h.Certificate())
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// secretFile returns a file with a secret.
func secretFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func newWebhook(t *testing.T, o WebhookOptions) Receiver {
	t.Helper()
	r, err := Webhook(o)
	require.NoError(t, err)
	return r
}

func message() Message {
	c := composer{namespace: "billing", group: "default"}
	return c.compose([]Change{{Job: `a"b<c`, Transition: Failing, Since: begin, Changes: 1, State: "failing: shard 3", Error: `bad "value"`, Fire: begin}}, 0, maxSingle, begin)[0]
}

func isPermanent(err error) bool {
	var p *executor.PermanentError
	return errors.As(err, &p)
}

func TestWebhook_SendsTheMessageAsJSON(t *testing.T) {
	h := newHook(t, true, nil)
	r := newWebhook(t, WebhookOptions{URL: h.URL + "/hook", TLS: h.pool(), Header: map[string]string{"X-Team": "ops"}})
	m := message()
	require.NoError(t, r.Deliver(t.Context(), m))
	got := h.requests()[0]
	assert.Equal(t, []string{"POST", "/hook", "application/json", m.ID, "ops"},
		[]string{got.method, got.path, got.header.Get("Content-Type"), got.header.Get("Idempotency-Key"), got.header.Get("X-Team")})
	var back Message
	require.NoError(t, json.Unmarshal([]byte(got.body), &back))
	assert.Equal(t, m, back)
}

// The shapes of docs/operating/notifications.md.
func TestWebhook_Templates(t *testing.T) {
	for body, want := range map[string]string{
		`{"text": {{json .Text}}}`:                                       `{"text": "billing/default: a\"b<c is failing: shard 3, fire 2026-03-01T03:00:00Z: bad \"value\""}`,
		`{"msgtype": "text", "text": {"content": {{json .Subject}}}}`:    `{"msgtype": "text", "text": {"content": "billing/default: a\"b<c is failing: shard 3, fire 2026-03-01T03:00:00Z: bad \"value\""}}`,
		`{{.Transition}} {{.Job}} {{range .Jobs}}x{{end}}{{.Fire.Unix}}`: fmt.Sprintf(`failing a"b<c %d`, begin.Unix()),
	} {
		h := newHook(t, false, nil)
		require.NoError(t, newWebhook(t, WebhookOptions{URL: h.URL, Body: body}).Deliver(t.Context(), message()))
		assert.Equal(t, want, h.requests()[0].body)
	}
}

func TestWebhook_Answers(t *testing.T) {
	for _, c := range []struct {
		code      int
		after     string
		permanent bool
		delay     time.Duration
	}{
		{200, "", false, 0},
		{204, "", false, 0},
		{302, "", true, 0},
		{400, "", true, 0},
		{404, "", true, 0},
		{408, "", false, 0},
		{429, "30", false, 30 * time.Second},
		{500, "", false, 0},
		{503, "7", false, 7 * time.Second},
	} {
		t.Run(fmt.Sprint(c.code), func(t *testing.T) {
			h := newHook(t, false, func(w http.ResponseWriter, _ *http.Request) {
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				w.WriteHeader(c.code)
				if c.code >= 400 {
					fmt.Fprint(w, "why\r\nnot")
				}
			})
			err := newWebhook(t, WebhookOptions{URL: h.URL}).Deliver(t.Context(), message())
			if c.code < 300 {
				require.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, fmt.Sprintf("POST %s: status %d", h.URL, c.code))
			if c.code >= 400 {
				assert.ErrorContains(t, err, "why  not")
			}
			assert.Equal(t, c.permanent, isPermanent(err))
			var later *executor.RetryAfterError
			assert.Equal(t, c.delay > 0, errors.As(err, &later))
			if later != nil {
				assert.Equal(t, c.delay, later.After)
			}
		})
	}
}

func TestWebhook_FollowsNoRedirectToAnotherHost(t *testing.T) {
	other := newHook(t, false, nil)
	h := newHook(t, false, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	err := newWebhook(t, WebhookOptions{URL: h.URL}).Deliver(t.Context(), message())
	assert.ErrorContains(t, err, "redirect not followed")
	assert.Empty(t, other.requests())

	same := newHook(t, false, nil)
	same.answer = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
		}
	}
	require.NoError(t, newWebhook(t, WebhookOptions{URL: same.URL}).Deliver(t.Context(), message()))
	assert.Equal(t, "/there", same.requests()[1].path)
}

func TestWebhook_EndsWithItsContext(t *testing.T) {
	blocked := make(chan struct{})
	h := newHook(t, false, func(http.ResponseWriter, *http.Request) { <-blocked })
	defer close(blocked)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("no answer in time"))
	defer cancel()
	err := newWebhook(t, WebhookOptions{URL: h.URL}).Deliver(ctx, message())
	assert.ErrorContains(t, err, "no answer in time")
	assert.False(t, isPermanent(err))
}

// No error names a secret: not the URL, not the value of a header field, though the server repeats both.
func TestWebhook_ErrorsHaveNoSecrets(t *testing.T) {
	const token, path = "tok-9f8e7d6c5b4a", "services/T000/B000/XXXXsecretXXXX"
	for name, answer := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, strings.Repeat("x", 180), " ", r.Header.Get("Authorization"), " is no token")
		},
		"with the URL": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, r.URL.String(), " ", r.URL.Query().Get("key"), " ", r.URL.Path[1:])
		},
		"broken off": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHook(t, false, answer)
			r := newWebhook(t, WebhookOptions{
				URLFile: secretFile(t, h.URL+"/"+path+"?key=otherSecret\n"), HeaderFiles: map[string]string{"Authorization": secretFile(t, "Bearer "+token+"\n")},
			})
			err := r.Deliver(t.Context(), message())
			require.Error(t, err)
			for _, secret := range []string{token, token[:8], path, "XXXXsecretXXXX", "XXXXs", "otherSecret"} {
				assert.NotContains(t, err.Error(), secret)
			}
			assert.ErrorContains(t, err, "POST "+h.URL)
			require.NotEmpty(t, h.requests())
			assert.Equal(t, "Bearer "+token, h.requests()[0].header.Get("Authorization"))
			assert.Equal(t, "/"+path+"?key=otherSecret", h.requests()[0].path)
		})
	}
	r := newWebhook(t, WebhookOptions{URLFile: secretFile(t, "http://127.0.0.1:1/"+path), HeaderFiles: map[string]string{"X-Key": secretFile(t, "a\r\nX-Other: b")}})
	err := r.Deliver(t.Context(), message())
	assert.ErrorContains(t, err, "line break")
	assert.NotContains(t, err.Error(), "X-Other")
	r = newWebhook(t, WebhookOptions{URLFile: secretFile(t, "ftp://"+path)})
	err = r.Deliver(t.Context(), message())
	assert.EqualError(t, err, "the URL does not begin with http:// or https://")
}

func TestWebhook_FilesAreReadForEachMessage(t *testing.T) {
	h := newHook(t, false, nil)
	file := secretFile(t, "first-token")
	r := newWebhook(t, WebhookOptions{URL: h.URL, HeaderFiles: map[string]string{"X-Key": file}})
	require.NoError(t, r.Deliver(t.Context(), message()))
	require.NoError(t, os.WriteFile(file, []byte("second-token"), 0o600))
	require.NoError(t, r.Deliver(t.Context(), message()))
	assert.Equal(t, "second-token", h.requests()[1].header.Get("X-Key"))
	require.NoError(t, os.Remove(file))
	err := r.Deliver(t.Context(), message())
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.False(t, isPermanent(err), "the file may come back")
}

func TestWebhook_RefusesWrongOptions(t *testing.T) {
	for want, o := range map[string]WebhookOptions{
		"URL: needs one of":           {},
		"URL: does not begin":         {URL: "file:///etc/passwd"},
		"URL: has no host":            {URL: "http:///x"},
		"Method: ":                    {URL: "http://x", Method: "A B"},
		"is not the name of a field":  {URL: "http://x", Header: map[string]string{"a b": ""}},
		"follows from URL and Body":   {URL: "http://x", HeaderFiles: map[string]string{"host": "f"}},
		"is given twice":              {URL: "http://x", Header: map[string]string{"A": "x"}, HeaderFiles: map[string]string{"a": "f"}},
		"has a line break":            {URL: "http://x", Header: map[string]string{"A": "x\r\nB: c"}},
		"Body: template: body:1":      {URL: "http://x", Body: "{{.Text"},
		"can't evaluate field Nobody": {URL: "http://x", Body: "{{.Nobody}}"},
	} {
		_, err := Webhook(o)
		assert.ErrorContains(t, err, want)
	}
}

func TestSendTest_ReturnsTheAnswer(t *testing.T) {
	h := newHook(t, false, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "queued\n") })
	answer, err := SendTest(t.Context(), newWebhook(t, WebhookOptions{URL: h.URL}), "billing", "")
	require.NoError(t, err)
	assert.Equal(t, "200 OK: queued", answer)
	var m Message
	require.NoError(t, json.Unmarshal([]byte(h.requests()[0].body), &m))
	assert.Equal(t, []any{Test, "billing", "default"}, []any{m.Transition, m.Namespace, m.Group})

	_, err = SendTest(t.Context(), Func(func(context.Context, Message) error { panic("no") }), "billing", "")
	assert.EqualError(t, err, "Deliver panicked: no")
}
