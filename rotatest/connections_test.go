package rotatest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// fetch returns a job whose handler makes a request.
func fetch(client *http.Client, url string) executor.Job {
	return executor.Job{
		Name: "fetch", Schedule: schedule.Every(time.Hour), Shards: 4,
		Handler: executor.HandlerFunc(func(ctx context.Context, _ *executor.Run) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
			if err != nil {
				return err
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				return err
			}
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("status %s", resp.Status)
			}
			return nil
		}),
	}
}

// succeeds runs a job for a day, through a crash.
func succeeds(f *rotatest.Fleet, job executor.Job) {
	f.Start("a", job)
	f.Start("b", job)
	f.Sleep(12*time.Hour + time.Minute)
	f.Crash("a")
	f.Sleep(12 * time.Hour)
	f.Settle()
	runs := f.Runs(job.Name)
	if len(runs) != 4*24 {
		f.T().Errorf("%d runs, not %d", len(runs), 4*24)
	}
	for _, r := range runs {
		if r.Err != nil {
			f.T().Error(r)
		}
	}
}

// fake answers requests after a while.
type fake struct{ takes time.Duration }

func (f fake) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(f.takes)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("ok")), Request: req}, nil
}

func TestConnections_AFakeTransport(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		succeeds(f, fetch(&http.Client{Transport: fake{takes: time.Second}}, "http://service.test"))
	})
}

// pipes is a listener whose connections are in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// DialContext is that of an http.Transport, and of most other clients.
func (p *pipes) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func TestConnections_AServerInTheBubbleOverPipes(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		listener := newPipes()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			fmt.Fprint(w, "ok")
		})}
		go server.Serve(listener) //nolint:errcheck // it returns when the server is closed
		defer server.Close()
		transport := &http.Transport{DialContext: listener.DialContext}
		defer transport.CloseIdleConnections()
		succeeds(f, fetch(&http.Client{Transport: transport}, "http://service.test"))
	})
}

func TestConnections_AServerOutsideOfTheBubble(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	defer server.Close()
	rotatest.Run(t, func(f *rotatest.Fleet) {
		transport := &http.Transport{DisableKeepAlives: true}
		succeeds(f, fetch(&http.Client{Transport: transport}, server.URL))
	})
}
