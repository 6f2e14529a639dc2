package handler

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/httprules"
	"github.com/rota-dev/rota/registry/memory"
)

// server answers with f. Its address is literal in the URLs of a test.
func server(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

// call sends the request of a run.
func send(t *testing.T, req Request, r *executor.Run) error {
	t.Helper()
	h := HTTP(req)
	require.NoError(t, h.(executor.Checker).Check())
	return h.Handle(t.Context(), r)
}

// got is a request that a server received.
type got struct {
	method, uri, body string
	header            http.Header
}

// recorded returns the address of a server, and its last request.
func recorded(t *testing.T) (addr string, last *got) {
	last = &got{}
	return server(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*last = got{r.Method, r.RequestURI, string(b), r.Header}
	}), last
}

func TestHTTP_SendsTheRun(t *testing.T) {
	addr, last := recorded(t)
	require.NoError(t, send(t, Request{
		Method: "PUT", URL: addr + "/poll/{{.Shard}}?region={{.ShardParam}}", Body: `{"region":{{json .ShardParam}},"fence":{{.Fence}}}`,
		Header: map[string]string{"X-Fence": "{{.Fence}}", "content-type": "application/x"},
	}, run()))
	assert.Equal(t, "PUT", last.method)
	assert.Equal(t, "/poll/2?region=Guangzhou", last.uri)
	assert.Equal(t, `{"region":"Guangzhou","fence":7}`, last.body)
	assert.Equal(t, []string{"7"}, last.header["X-Fence"])
	assert.Equal(t, []string{"application/x"}, last.header["Content-Type"])
	assert.Equal(t, []string{"settle/2/2026-05-05T03:00:00Z"}, last.header["Idempotency-Key"])
}

func TestHTTP_Defaults(t *testing.T) {
	addr, last := recorded(t)
	require.NoError(t, send(t, Request{URL: addr}, run()))
	assert.Equal(t, "POST", last.method)
	assert.Empty(t, last.body)
	assert.NotContains(t, last.header, "Content-Type")

	require.NoError(t, send(t, Request{URL: addr, Body: "{{json .}}"}, run()))
	assert.Equal(t, []string{"application/json"}, last.header["Content-Type"])
	want, err := toJSON(viewOf(run()))
	require.NoError(t, err)
	assert.Equal(t, want, last.body)
}

func TestHTTP_IdempotencyKey(t *testing.T) {
	addr, last := recorded(t)
	for key, want := range map[string]string{
		"settle/2/#7": "settle/2/#7", "nightly report/0/x": "nightly%20report/0/x", "100%/0/x": "100%25/0/x", "北/0/x": "%E5%8C%97/0/x",
	} {
		require.NoError(t, send(t, Request{URL: addr}, &executor.Run{RunInfo: executor.RunInfo{Key: key}}))
		assert.Equal(t, []string{want}, last.header["Idempotency-Key"])
	}
	require.NoError(t, send(t, Request{URL: addr, Header: map[string]string{"idempotency-key": "mine-{{.Shard}}"}}, run()))
	assert.Equal(t, []string{"mine-2"}, last.header["Idempotency-Key"])
}

// What arrives has the path, parameters and fields of the template, or the run fails for good.
func TestHTTP_HostileParameters(t *testing.T) {
	addr, last := recorded(t)
	for _, param := range hostile {
		r := run()
		r.Param, r.ShardParam = param, param
		t.Run(fmt.Sprintf("%.20q", param), func(t *testing.T) {
			*last = got{}
			err := send(t, Request{URL: addr + "/tenants/{{.ShardParam}}/poll?from={{.Param}}", Body: `{"a":{{json .Param}}}`}, r)
			if param == "" || param == "." || param == ".." || strings.ContainsAny(param, `/\`) {
				assert.True(t, isPermanent(err), err)
				assert.Empty(t, last.method, "nothing was sent")
				return
			}
			require.NoError(t, err)
			path, query, _ := strings.Cut(last.uri, "?")
			assert.Equal(t, "/tenants/"+url.PathEscape(param)+"/poll", strings.NewReplacer("%3D", "=", "%3A", ":", "%40", "@", "%26", "&", "%24", "$").Replace(path))
			values, err := url.ParseQuery(query)
			require.NoError(t, err)
			assert.Equal(t, url.Values{"from": {param}}, values)
			assert.NotContains(t, last.header, "X-Injected")
		})
		t.Run(fmt.Sprintf("%.20q in a field", param), func(t *testing.T) {
			*last = got{}
			err := send(t, Request{URL: addr, Header: map[string]string{"X-Region": "<{{.ShardParam}}>"}}, r)
			if strings.ContainsAny(param, "\r\n") {
				assert.True(t, isPermanent(err), err)
				assert.ErrorContains(t, err, "Header: the value of X-Region has a line break or another control character")
				assert.Empty(t, last.method, "nothing was sent")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, []string{"<" + param + ">"}, last.header["X-Region"])
			assert.NotContains(t, last.header, "X-Injected")
		})
	}
}

func delayOf(err error) (after time.Duration, ok bool) {
	var r *executor.RetryAfterError
	if errors.As(err, &r) {
		return r.After, true
	}
	return 0, false
}

func TestHTTP_Statuses(t *testing.T) {
	for _, c := range []struct {
		code          int
		ok, permanent Statuses
		want          string // "" for success
	}{
		{200, nil, nil, ""},
		{204, nil, nil, ""},
		{299, nil, nil, ""},
		{304, nil, nil, "permanent"},
		{400, nil, nil, "permanent"},
		{404, nil, nil, "permanent"},
		{407, nil, nil, "permanent"},
		{408, nil, nil, "failed"},
		{409, nil, nil, "permanent"},
		{424, nil, nil, "permanent"},
		{425, nil, nil, "failed"},
		{426, nil, nil, "permanent"},
		{428, nil, nil, "permanent"},
		{429, nil, nil, "failed"},
		{430, nil, nil, "permanent"},
		{499, nil, nil, "permanent"},
		{500, nil, nil, "failed"},
		{503, nil, nil, "failed"},
		{599, nil, nil, "failed"},
		{202, Status(200, 200), nil, "failed"},
		{409, Statuses{{200, 299}, {409, 409}}, nil, ""},
		{404, nil, Statuses{}, "failed"},
		{501, nil, Status(501, 501), "permanent"},
	} {
		addr := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.code) })
		err := send(t, Request{URL: addr, OK: c.ok, Permanent: c.permanent}, run())
		if c.want == "" {
			assert.NoError(t, err, c.code)
			continue
		}
		var status *StatusError
		require.ErrorAs(t, err, &status)
		assert.Equal(t, c.code, status.Code)
		assert.Equal(t, c.want == "permanent", isPermanent(err), c.code)
		_, delayed := delayOf(err)
		assert.False(t, delayed)
	}
}

func TestHTTP_ErrorHasTheBeginningOfTheBodyAndNoSecret(t *testing.T) {
	addr := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, "\nno \x1bconnection to the database\nsecond line\n", strings.Repeat("x", 1<<20))
	})
	host := strings.TrimPrefix(addr, "http://")
	err := send(t, Request{
		URL: "http://user:password@" + host + "/hook/secret/{{.Shard}}?token=secret", Header: map[string]string{"Authorization": "Bearer secret"}, Body: "secret",
	}, run())
	assert.EqualError(t, err, "POST "+host+": status 503 Service Unavailable: no  connection to the database")
	var status *StatusError
	require.ErrorAs(t, err, &status)
	assert.Len(t, status.Body, maxTail)

	t.Run("after a failure of the network", func(t *testing.T) {
		s := httptest.NewServer(nil)
		s.Close()
		host := strings.TrimPrefix(s.URL, "http://")
		err := send(t, Request{URL: "http://user:password@" + host + "/hook/secret?token=secret"}, run())
		assert.ErrorContains(t, err, "POST "+host+": dial tcp")
		assert.False(t, isPermanent(err))
		assert.NotContains(t, err.Error(), "secret")
		assert.NotContains(t, err.Error(), "password")
	})
}

func TestHTTP_RetryAfterIsADelay(t *testing.T) {
	date := time.Date(2026, 5, 5, 3, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status int
		value  string
		want   time.Duration // -1 for none
	}{
		{503, "120", 2 * time.Minute},
		{429, " 7 ", 7 * time.Second},
		{500, "3", 3 * time.Second},
		{503, date.Add(time.Minute).Format(http.TimeFormat), time.Minute},
		{503, date.Add(-time.Minute).Format(http.TimeFormat), -1},
		{503, "0", -1},
		{503, "-5", -1},
		{503, "soon", -1},
		{503, "1.5", -1},
		{503, "", -1},
		{503, "86400", time.Hour},
		{503, "99999999999999999999999", time.Hour},
		{503, date.AddDate(100, 0, 0).Format(http.TimeFormat), time.Hour},
	} {
		addr := server(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", date.Format(http.TimeFormat)) // by the clock of the server
			w.Header().Set("Retry-After", c.value)
			w.WriteHeader(c.status)
		})
		err := send(t, Request{URL: addr}, run())
		after, ok := delayOf(err)
		if !ok {
			after = -1
		}
		assert.Equal(t, c.want, after, c.value)
		assert.False(t, isPermanent(err))
	}
	t.Run("by this clock if the response has no date", func(t *testing.T) {
		h := http.Header{"Retry-After": {date.Add(time.Minute).Format(http.TimeFormat)}}
		assert.Equal(t, 50*time.Second, httprules.RetryAfter(h, date.Add(10*time.Second)))
	})
	t.Run("not after a permanent status", func(t *testing.T) {
		addr := server(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(http.StatusBadRequest)
		})
		assert.True(t, isPermanent(send(t, Request{URL: addr}, run())))
	})
}

func TestHTTP_Redirects(t *testing.T) {
	var other int
	elsewhere := server(t, func(http.ResponseWriter, *http.Request) { other++ })
	var addr string
	addr = server(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
		case "/changes-method":
			http.Redirect(w, r, "/there", http.StatusFound)
		case "/elsewhere":
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		case "/other-name":
			http.Redirect(w, r, strings.Replace(addr, "127.0.0.1", "localhost", 1)+"/there", http.StatusTemporaryRedirect)
		case "/other-scheme":
			http.Redirect(w, r, "ftp://127.0.0.1/there", http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusPermanentRedirect)
		case "/there":
			b, _ := io.ReadAll(r.Body)
			if r.Method == http.MethodPost && (string(b) != "2" || r.Header.Get("Idempotency-Key") == "") {
				w.WriteHeader(http.StatusTeapot)
			}
		}
	})
	for _, c := range []struct {
		method, path string
		status       int // of the error, 0 for success
	}{
		{"POST", "/same", 0},
		{"GET", "/same", 0},
		{"GET", "/changes-method", 0}, // to GET
		{"POST", "/changes-method", 302},
		{"POST", "/elsewhere", 307},
		{"GET", "/elsewhere", 307},
		{"GET", "/other-name", 307},
		{"GET", "/other-scheme", 307},
		{"POST", "/loop", 308},
	} {
		err := send(t, Request{Method: c.method, URL: addr + c.path, Body: "{{.Shard}}"}, run())
		if c.status == 0 {
			assert.NoError(t, err, c.path)
			continue
		}
		var status *StatusError
		if assert.ErrorAs(t, err, &status, c.path) {
			assert.Equal(t, c.status, status.Code, c.path)
			assert.ErrorContains(t, err, "redirect not followed")
			assert.True(t, isPermanent(err))
		}
	}
	assert.Zero(t, other)

	t.Run("rule", func(t *testing.T) {
		for _, c := range []struct {
			from, to string
			same     bool
		}{
			{"http://a/x", "http://A/y", true},
			{"http://a/x", "http://a:80/y", true},
			{"https://a:443/x", "https://a/y", true},
			{"http://a/x", "https://a/x", true},
			{"https://a/x", "http://a/x", false},
			{"https://a:80/x", "http://a:443/x", false},
			{"http://a/x", "https://a:8443/x", false},
			{"http://a:8080/x", "https://a/x", false},
			{"http://a/x", "http://a:8080/x", false},
			{"http://a/x", "http://b/x", false},
			{"http://a/x", "http://a.b/x", false},
		} {
			from, err := url.Parse(c.from)
			require.NoError(t, err)
			to, err := url.Parse(c.to)
			require.NoError(t, err)
			assert.Equal(t, c.same, httprules.IsSameServer(from, to), "%s to %s", from, to)
		}
	})
	t.Run("also by the rule of the client", func(t *testing.T) {
		own := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		err := send(t, Request{URL: addr + "/same", Client: own}, run())
		assert.ErrorContains(t, err, "status 307")
		assert.ErrorContains(t, send(t, Request{URL: addr + "/elsewhere", Client: &http.Client{}}, run()), "status 307")
	})
}

func TestHTTP_Ends(t *testing.T) {
	client := func() *http.Client { return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} }
	hang := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	stream := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begin")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	for name, answer := range map[string]http.HandlerFunc{"before the response": hang, "within the response": stream} {
		t.Run("by the time-out "+name, func(t *testing.T) {
			addr := server(t, answer)
			noLeak(t)
			err := send(t, Request{URL: addr, Client: client(), Timeout: 30 * time.Millisecond}, run())
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "no whole response within 30ms")
			assert.False(t, isPermanent(err))
		})
		t.Run("with the context "+name, func(t *testing.T) {
			began := make(chan struct{}, 1)
			addr := server(t, func(w http.ResponseWriter, r *http.Request) { began <- struct{}{}; answer(w, r) })
			noLeak(t)
			ctx, stop := context.WithCancelCause(t.Context())
			result := start(ctx, HTTP(Request{URL: addr, Client: client(), Timeout: -1}), run())
			<-began
			stop(errStop)
			err := await(t, result)
			assert.ErrorIs(t, err, errStop)
			assert.EqualError(t, err, "POST "+strings.TrimPrefix(addr, "http://")+": stop")
		})
	}
	t.Run("before the request if the context has ended", func(t *testing.T) {
		ctx, stop := context.WithCancelCause(t.Context())
		stop(errStop)
		assert.Equal(t, errStop, HTTP(Request{URL: "http://127.0.0.1:1"}).Handle(ctx, run()))
	})
	t.Run("with an error if the response breaks off", func(t *testing.T) {
		addr := server(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "half")
		})
		assert.ErrorIs(t, send(t, Request{URL: addr}, run()), io.ErrUnexpectedEOF)
	})
	t.Run("without reading an endless response", func(t *testing.T) {
		addr := server(t, func(w http.ResponseWriter, _ *http.Request) {
			for _, err := w.Write(make([]byte, 1<<10)); err == nil; _, err = w.Write(make([]byte, 1<<10)) {
			}
		})
		noLeak(t)
		ctx := context.WithoutCancel(t.Context()) // its end would close the connection
		assert.NoError(t, HTTP(Request{URL: addr, Client: client(), Timeout: -1}).Handle(ctx, run()))
	})
}

func TestHTTP_UsesConnectionsAgain(t *testing.T) {
	for _, status := range []int{200, 500} {
		remotes := map[string]bool{}
		addr := server(t, func(w http.ResponseWriter, r *http.Request) {
			remotes[r.RemoteAddr] = true
			w.WriteHeader(status)
			fmt.Fprint(w, strings.Repeat("x", maxDrain/2))
		})
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		for range 5 {
			_ = send(t, Request{URL: addr, Client: &http.Client{Transport: transport}}, run())
		}
		assert.Len(t, remotes, 1)
	}
}

func TestHTTP_TLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	assert.NoError(t, send(t, Request{URL: s.URL, TLS: &tls.Config{RootCAs: roots}}, run()))
	assert.ErrorContains(t, send(t, Request{URL: s.URL, TLS: &tls.Config{}}, run()), "certificate")
	assert.ErrorContains(t, send(t, Request{URL: s.URL}, run()), "certificate")
	assert.NoError(t, send(t, Request{URL: s.URL, Client: s.Client()}, run()))
}

func TestHTTP_ContainsFunctionsOfTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	defer s.Close()
	for deed, do := range map[string]func(){"panicked": func() { panic("boom") }, "called runtime.Goexit": runtime.Goexit} {
		for name, c := range map[string]*tls.Config{
			"VerifyConnection":      {VerifyConnection: func(tls.ConnectionState) error { do(); return nil }},
			"VerifyPeerCertificate": {VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error { do(); return nil }},
			"GetClientCertificate":  {GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { do(); return &tls.Certificate{}, nil }},
		} {
			t.Run(name+" "+deed, func(t *testing.T) {
				c.InsecureSkipVerify = true
				require.ErrorContains(t, send(t, Request{URL: s.URL, TLS: c, Timeout: 10 * time.Second}, run()), deed)
			})
		}
	}
}

func TestHTTP_CheckReportsAllProblems(t *testing.T) {
	h := HTTP(Request{
		Method: "GE T", URL: "https://{{.Param}}/", Body: "{{.Shrad}}", OK: Status(0, 299), Permanent: Statuses{{500, 400}},
		Header: map[string]string{"A b": "", "Host": "x", "X": "{{", "a": "", "A": ""}, TLS: &tls.Config{}, Client: &http.Client{},
	})
	ex, err := executor.New(memory.New().Client("a"), "test", executor.Options{})
	require.NoError(t, err)
	err = ex.Register(executor.Job{Name: "job", Handler: h})
	assert.ErrorIs(t, err, executor.ErrInvalidJob)
	var want []string
	for _, problem := range []string{
		"URL: {{.Param}}: a value may not be part of scheme, host or port",
		`Method: "GE T" is not a method`,
		`Header: "A b" is not the name of a field`,
		"Header: Host follows from URL and Body",
		"template: Header X:1: unclosed action",
		"Header: a is given twice",
		"template: Body: a run has no .Shrad",
		"OK: [0 299] is not a range within 200 to 599",
		"Permanent: [500 400] is not a range within 200 to 599",
		"TLS and Client exclude each other",
	} {
		want = append(want, `invalid job "job": Handler: `+problem)
	}
	assert.Equal(t, strings.Join(want, "\n"), fmt.Sprint(err))
	assert.True(t, isPermanent(h.Handle(t.Context(), run())), "a run of an unchecked handler fails for good")
}

func TestHTTP_CopiesItsRequest(t *testing.T) {
	addr, last := recorded(t)
	header := map[string]string{"X": "before"}
	ok := Status(200, 299)
	h := HTTP(Request{URL: addr, Header: header, OK: ok})
	header["X"], header["Y"] = "after", "after"
	ok[0] = [2]int{500, 599}
	require.NoError(t, h.Handle(t.Context(), run()))
	assert.Equal(t, []string{"before"}, last.header["X"])
	assert.NotContains(t, last.header, "Y")
}
