package console

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// start runs a server until the test ends, or stop is called, and returns its address. Stop returns what run does.
func start(t *testing.T, s *server) (address string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	listening := make(chan net.Addr, 1)
	s.listening = func(a net.Addr) { listening <- a }
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() { _ = stop() })
	select {
	case a := <-listening:
		return a.String(), stop
	case err := <-ended:
		stopped = true
		require.NoError(t, err)
		return "", stop
	}
}

// countingRegistry counts the calls that write.
type countingRegistry struct {
	registry.Registry
	writes *atomic.Int64
}

func (c countingRegistry) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	c.writes.Add(1)
	return c.Registry.Txn(ctx, t)
}

func (c countingRegistry) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	c.writes.Add(1)
	return c.Registry.OpenSession(ctx, o)
}

// newRealServer returns a server whose fleets are on registries in memory, by the URL of their contexts.
func newRealServer(t *testing.T, o options, open func(url string, o registryurl.Options) (registry.Registry, error)) (*server, *journal) {
	t.Helper()
	o.listen, o.path = "127.0.0.1:0", "/"
	require.NoError(t, o.check())
	o.uid = os.Geteuid()
	root := settingsOf(t, open)
	withFlags(root)
	log := &journal{}
	fleets, err := newFleets(root, o.contexts, o.allowActs, log.logger())
	require.NoError(t, err)
	return &server{options: o, fleets: fleets, open: openConsole(&o, log.logger()), log: log.logger(), out: io.Discard}, log
}

// browser returns a client with cookies that trusts any certificate.
func browser(t *testing.T) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Jar: &jar{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// jar keeps the cookies of one site.
type jar struct{ cookies []*http.Cookie }

func (j *jar) SetCookies(_ *url.URL, c []*http.Cookie) { j.cookies = c }
func (j *jar) Cookies(*url.URL) []*http.Cookie         { return j.cookies }

// fetch returns the status and the body of a page.
func fetch(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// eventually fetches a page until it has a text.
func eventually(t *testing.T, c *http.Client, url, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, body := fetch(t, c, url)
		return strings.Contains(body, text)
	}, time.Minute, 20*time.Millisecond, "%s has no %q", url, text)
}

// Without --allow-acts, the store is opened for reading, and no request writes to it.
func TestWeb_WritesNothingUnlessActsAreAllowed(t *testing.T) {
	for _, acts := range []bool{false, true} {
		t.Run(fmt.Sprint(acts), func(t *testing.T) {
			var writes atomic.Int64
			store := memory.New()
			var opened registryurl.Options
			s, _ := newRealServer(t, options{users: usersFile(t), allowActs: acts}, func(_ string, o registryurl.Options) (registry.Registry, error) {
				opened = o
				return countingRegistry{store.Client("web"), &writes}, nil
			})
			address, stop := start(t, s)
			c := browser(t)
			base := "http://" + address
			resp, err := c.PostForm(base+"/-/login", url.Values{"name": {"kim"}, "password": {password}})
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, http.StatusSeeOther, resp.StatusCode)
			eventually(t, c, base+"/billing/", "billing/default")
			for _, path := range []string{"", "instances", "acts", "decisions", "doctor", "act/pause"} {
				code, body := fetch(t, c, base+"/billing/"+path)
				assert.Less(t, code, 500, "%s: %s", path, body)
			}
			for _, verb := range []string{"pause", "pause-all"} {
				resp, err := c.PostForm(base+"/billing/act/"+verb, url.Values{"reason": {"a test"}})
				require.NoError(t, err)
				resp.Body.Close()
				if !acts {
					assert.GreaterOrEqual(t, resp.StatusCode, 400)
				}
			}
			require.NoError(t, stop())
			assert.Equal(t, !acts, opened.ReadOnly)
			assert.Equal(t, acts, writes.Load() > 0, "%d writes", writes.Load())
		})
	}
}

// A fleet whose store is away does not stop the others, and is served when the store is back.
func TestWeb_ServesFleetsWhoseStoreIsThere(t *testing.T) {
	store := memory.New()
	var back atomic.Bool
	s, log := newRealServer(t, options{contexts: []string{"billing", "search"}}, func(url string, _ registryurl.Options) (registry.Registry, error) {
		if url == "etcd://b:1" && !back.Load() {
			return nil, errors.New("connection refused by the <store>")
		}
		return store.Client(url), nil
	})
	address, stop := start(t, s)
	c := browser(t)
	base := "http://" + address
	eventually(t, c, base+"/billing/", "billing/default")
	eventually(t, c, base+"/search/", "connection refused by the &lt;store&gt;")
	code, body := fetch(t, c, base+"/search/jobs/a")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, "search: its store is away")
	_, body = fetch(t, c, base+"/")
	assert.Contains(t, body, "connected")
	assert.Contains(t, body, "away")
	back.Store(true)
	eventually(t, c, base+"/search/", "search/default")
	_, body = fetch(t, c, base+"/billing/")
	assert.Contains(t, body, "all fleets")
	assert.Equal(t, 1, strings.Count(log.String(), `msg="serving a fleet without its history" fleet=search`), log.String())
	require.NoError(t, stop())
}

func TestFleet_TriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newTestServer(t, options{})
		ctx, cancel := context.WithCancel(t.Context())
		var at []time.Duration
		closed := false
		began := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.fleets[0].serve(ctx, func(context.Context, *fleet) (http.Handler, io.Closer, error) {
				if at = append(at, time.Since(began).Round(time.Second)/time.Second); len(at) < 8 {
					return nil, nil, fmt.Errorf("reason %d", len(at)/5)
				}
				return http.NotFoundHandler(), closer(func() { closed = true }), nil
			}, s.log)
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []time.Duration{0, 1, 3, 7, 15, 31, 61, 91}, at)
		assert.Equal(t, 2, strings.Count(log.String(), "a fleet cannot be opened yet"), "a reason is logged once")
		assert.False(t, closed)
		cancel()
		<-done
		assert.True(t, closed)
	})
}

// The end of the command ends streams and requests, closes the stores, and leaves no goroutine.
func TestWeb_EndsStreams(t *testing.T) {
	goroutines := func() (n int) { // as a condition counts them, in a goroutine of its own
		require.Eventually(t, func() bool {
			n = runtime.NumGoroutine()
			return true
		}, time.Minute, time.Millisecond)
		return n
	}
	before := goroutines()
	store := memory.New()
	reg := &closableRegistry{Registry: store.Client("web")}
	s, _ := newRealServer(t, options{}, func(string, registryurl.Options) (registry.Registry, error) { return reg, nil })
	address, stop := start(t, s)
	c := browser(t)
	eventually(t, c, "http://"+address+"/billing/", "billing/default")
	var streams []*http.Response
	for range 5 {
		resp, err := c.Get("http://" + address + "/billing/events")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "retry: 3000\n", line)
		streams = append(streams, resp)
	}
	begin := time.Now()
	require.NoError(t, stop())
	assert.Less(t, time.Since(begin), shutdownTimeout, "no stream is waited for")
	for _, resp := range streams {
		_, _ = io.Copy(io.Discard, resp.Body) // ends
		resp.Body.Close()
	}
	assert.True(t, reg.closed.Load())
	c.CloseIdleConnections()
	assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before }, time.Minute, 10*time.Millisecond, "goroutines are left")
}

type closableRegistry struct {
	registry.Registry
	closed atomic.Bool
}

func (c *closableRegistry) Close(ctx context.Context) error {
	c.closed.Store(true)
	return c.Registry.Close(ctx)
}

// certify writes a new certificate and its key.
func certify(t *testing.T, certFile, keyFile, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		require.NoError(t, os.WriteFile(path+".new", pem.EncodeToMemory(block), 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
}

func TestWeb_ServesTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	certify(t, cert, key, "first.example")
	store := memory.New()
	s, log := newRealServer(t, options{users: usersFile(t), tlsCert: cert, tlsKey: key}, func(string, registryurl.Options) (registry.Registry, error) {
		return store.Client("web"), nil
	})
	var out bytes.Buffer
	s.out = &out
	address, stop := start(t, s)
	assert.Contains(t, out.String(), "The console of 1 fleet (billing) is at https://"+address+"/\nIt looks only.\n")
	c := browser(t)
	resp, err := c.PostForm("https://"+address+"/-/login", url.Values{"name": {"kim"}, "password": {password}})
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	assert.True(t, c.Jar.Cookies(nil)[0].Secure)
	assert.Equal(t, 2, resp.ProtoMajor)
	eventually(t, c, "https://"+address+"/billing/", "billing/default")
	resp, err = c.Get("https://" + address + "/billing/events")
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))

	nameOf := func() string {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	assert.Equal(t, "first.example", nameOf())
	require.NoError(t, os.WriteFile(cert, []byte("half a file"), 0o600))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "a changed file cannot be used") }, time.Minute, 20*time.Millisecond)
	assert.Equal(t, "first.example", nameOf())
	certify(t, cert, key, "second.example")
	require.Eventually(t, func() bool { return nameOf() == "second.example" }, time.Minute, 20*time.Millisecond)
	_, err = http.Get("http://" + address + "/") // the answer of net/http to a wrong scheme
	assert.NoError(t, err)
	require.NoError(t, stop())
}

// Streams outlast the bounds of requests, and a client that is slow to send does not.
func TestServer_Bounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newTestServer(t, options{})
		began := time.Now()
		ended := make(chan time.Duration, 1)
		s.fleets[0].handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				_, _ = io.ReadAll(r.Body)
				return
			}
			for {
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute))
				if _, err := io.WriteString(w, "data: x\n\n"); err != nil {
					return
				}
				select {
				case <-r.Context().Done():
					ended <- time.Since(began)
					return
				case <-time.After(15 * time.Second):
				}
			}
		})
		l := pipeListener{make(chan net.Conn)}
		server := newHTTPServer(s)
		done := make(chan error, 1)
		go func() { done <- server.Serve(l) }()
		conn := l.dial()
		_, err := io.WriteString(conn, "GET /billing/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		slow := l.dial()
		_, err = io.WriteString(slow, "POST /billing/act/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
		require.NoError(t, err)
		answer := make(chan time.Duration, 1)
		go func() {
			_, _ = io.Copy(io.Discard, slow)
			answer <- time.Since(began)
		}()
		assert.LessOrEqual(t, <-answer, 15*time.Second)
		assert.Equal(t, maxRequest, <-ended)
		conn.Close()
		slow.Close()
		server.Close()
		<-done
	})
}

// pipeListener accepts one end of each pipe that is dialed. Their ends have an address of this host.
type pipeListener struct{ conns chan net.Conn }

type localConn struct{ net.Conn }

func (localConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return localConn{conn}, nil
}

func (l pipeListener) Close() error {
	close(l.conns)
	return nil
}

func (pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l pipeListener) dial() net.Conn {
	ours, theirs := net.Pipe()
	l.conns <- theirs
	return ours
}

func TestWeb_RefusesFiles(t *testing.T) {
	path := usersFile(t)
	for mode, want := range map[os.FileMode]string{0o620: "group or others may write it", 0o644: "all users may read it", 0o640: "", 0o400: ""} {
		require.NoError(t, os.Chmod(path, mode))
		o := options{users: path, uid: os.Geteuid()}
		_, err := o.readUsers()
		if want == "" {
			assert.NoError(t, err, mode)
			continue
		}
		assert.ErrorContains(t, err, want, mode)
	}
	require.NoError(t, os.Chmod(path, 0o600))
	writeUsers(t, path, "- {name: kim, roles: {\"*\": look}}\n")
	_, err := (&options{users: path, uid: os.Geteuid()}).readUsers()
	assert.ErrorContains(t, err, "no user has a hash")
	_, err = (&options{users: path, uid: os.Geteuid(), proxyHeader: "X-User"}).readUsers()
	assert.NoError(t, err, "a proxy checks the passwords")
}

func TestCommand_RefusesToStart(t *testing.T) {
	certless := filepath.Join(t.TempDir(), "none")
	for want, args := range map[string][]string{
		"--listen is \":7682\", which other hosts reach":    {"web", "--listen", ":7682"},
		`there is no context "x"`:                           {"web", "--context", "x"},
		`the context "a/b" cannot be a part of a URL`:       {"web", "--context", "a/b"},
		`the context "search" is named twice`:               {"web", "--context", "search", "--context", "search"},
		"--registry is that of one fleet":                   {"web", "--context", "search", "--context", "billing", "--registry", "etcd://x"},
		`context "guarded" is protected: repeat with --yes`: {"web", "--context", "guarded", "--allow-acts", "--users", usersFile(t)},
		"stat " + certless:                                  {"web", "--tls-cert", certless, "--tls-key", certless},
		"no such file or directory":                         {"web", "--users", certless},
		"the password has 5 bytes":                          {"web", "hash"},
		`unknown command "serve" for "rota web"`:            {"web", "serve"},
		"--log-format is \"xml\"":                           {"web", "--log-format", "xml"},
	} {
		root := withFlags(settingsOf(t, nil))
		root.SetArgs(args)
		root.SetIn(strings.NewReader("short\n"))
		assert.ErrorContains(t, root.ExecuteContext(t.Context()), want)
	}
	s := settingsOf(t, nil)
	getenv := s.Getenv
	for _, variable := range []string{"ROTA_REGISTRY", "ROTA_NAMESPACE", "ROTA_GROUP", "ROTA_USER", "ROTA_PASSWORD", "ROTA_TLS"} {
		s.Getenv = func(name string) string {
			if name == variable {
				return "x"
			}
			return getenv(name)
		}
		root := withFlags(s)
		root.SetArgs([]string{"web", "--context", "billing,search"})
		err := root.ExecuteContext(t.Context())
		assert.ErrorContains(t, err, variable+" would")
		assert.Equal(t, exit.Usage, exit.CodeOf(err))
	}
}

func TestHashCommand(t *testing.T) {
	root := withFlags(settingsOf(t, nil))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"web", "hash"})
	root.SetIn(strings.NewReader(password + "\n"))
	require.NoError(t, root.ExecuteContext(t.Context()))
	assert.Regexp(t, `^hash: \$2a\$12\$[./0-9A-Za-z]{53}\n$`, out.String())
}
