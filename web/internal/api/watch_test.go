package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/web/internal/role"
	"github.com/rota-dev/rota/web/internal/sse"
)

// stream is the answer to a watch that goes on.
type stream struct {
	mu      sync.Mutex
	text    strings.Builder
	header  http.Header
	status  int
	stalled chan struct{} // not nil: writes wait until it is closed
	stop    context.CancelFunc
	ended   chan struct{}
}

func (s *stream) Header() http.Header  { return s.header }
func (s *stream) WriteHeader(code int) { s.status = code }
func (s *stream) Flush()               {}

func (s *stream) Write(p []byte) (int, error) {
	if s.stalled != nil {
		<-s.stalled
		return 0, io.ErrClosedPipe
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// events returns what has come, and forgets it.
func (s *stream) events() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.text.String()
	s.text.Reset()
	return text
}

// watch opens a stream.
func watch(t *testing.T, h http.Handler, s *stream, query string, further ...string) *stream {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s.header, s.stop, s.ended = http.Header{}, stop, make(chan struct{})
	go func() {
		defer close(s.ended)
		h.ServeHTTP(s, request(http.MethodGet, "/watch"+query, "", further...).WithContext(ctx))
	}()
	t.Cleanup(func() { stop(); <-s.ended })
	synctest.Wait()
	return s
}

// hasEnded reports whether the stream has ended.
func (s *stream) hasEnded() bool {
	synctest.Wait()
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

func TestWatch_StreamsTheJobsThatChange(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		all := watch(t, f.api, &stream{}, "", levelHeader, strconv.Itoa(int(role.Reveal)))
		some := watch(t, f.api, &stream{}, "?glob=s*", levelHeader, strconv.Itoa(int(role.Look)))
		assert.Equal(t, "text/event-stream", all.header.Get("Content-Type"))
		assert.Equal(t, "no", all.header.Get("X-Accel-Buffering"))
		for _, s := range []*stream{all, some} {
			assert.True(t, strings.HasPrefix(s.events(), "retry: 2000\nevent: ready\ndata: {}\n\n"))
		}
		require.NoError(t, f.op.Pause(t.Context(), "settle"))
		time.Sleep(7 * time.Second)
		text := some.events()
		var last view.Job
		for event := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
			data, found := strings.CutPrefix(event, "event: job\ndata: ")
			require.True(t, found, event)
			last = *decode(t, data, reflect.TypeFor[view.Job]()).(*view.Job)
			assert.Equal(t, "settle", last.Job)
		}
		assert.Equal(t, view.Paused, last.State)

		time.Sleep(time.Minute) // in which broken fires
		text = all.events()
		assert.Contains(t, text, `"name":"broken"`)
		assert.Contains(t, text, secret)
		assert.Contains(t, text, "\n\n: ping\n\n")
		text = some.events()
		assert.NotContains(t, text, "broken")

		concealed := watch(t, f.api, &stream{}, "", levelHeader, strconv.Itoa(int(role.Look)))
		time.Sleep(time.Minute)
		text = concealed.events()
		assert.Contains(t, text, `"name":"broken"`)
		assert.Contains(t, text, view.Concealed)
		assert.NotContains(t, text, secret)
	})
}

// fakeGroup is a group that a test changes.
type fakeGroup struct {
	mu    sync.Mutex
	jobs  []operator.JobSummary
	calls int
	err   error
}

func (g *fakeGroup) snapshot(context.Context) (operator.GroupStatus, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.calls++; g.err != nil {
		return operator.GroupStatus{}, g.err
	}
	return operator.GroupStatus{At: time.Now(), Jobs: append([]operator.JobSummary(nil), g.jobs...)}, nil
}

func (g *fakeGroup) set(jobs ...operator.JobSummary) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs = jobs
}

func (g *fakeGroup) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// looks returns how often the group was read.
func (g *fakeGroup) looks() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

func TestWatch_ReportsRemovedJobsAndThoseThatTimeMakesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGroup{}
		g.set(operator.JobSummary{Job: "a", Shards: 1, Overdue: time.Now()}, operator.JobSummary{Job: "b", Shards: 1})
		s := watch(t, New(Config{Snapshot: g.snapshot, Authorize: authorize, Logger: discard}), &stream{}, "")
		_ = s.events()
		time.Sleep(50 * time.Second)
		assert.NotContains(t, s.events(), "event: ")
		time.Sleep(20 * time.Second)
		assert.Contains(t, s.events(), `"state":"late"`)
		g.set(operator.JobSummary{Job: "a", Shards: 1})
		time.Sleep(6 * time.Second)
		text := s.events()
		assert.Contains(t, text, "event: removed\ndata: {\"name\":\"b\"}\n\n")
		assert.Contains(t, text, `"state":"ok"`)

		calls := g.looks()
		s.stop()
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, g.looks(), calls+1, "without a stream, nobody looks")
	})
}

func TestWatch_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGroup{}
		done := make(chan struct{})
		h := New(Config{Snapshot: g.snapshot, Authorize: authorize, Logger: discard, Done: done})
		slow := &stream{stalled: make(chan struct{})}
		_ = watch(t, h, slow, "")
		var streams []*stream
		for range maxStreams - 1 {
			streams = append(streams, watch(t, h, &stream{}, ""))
		}
		p := problem(t, serve(h, request("GET", "/watch", "")))
		assert.Equal(t, "too-many-streams", p.Type)
		assert.LessOrEqual(t, g.looks(), 2, "all streams share a look")

		for n := range maxWaiting + 3 { // more changes than wait for a reader
			g.set(operator.JobSummary{Job: "a", Revision: n + 1})
			time.Sleep(6 * time.Second)
		}
		assert.Equal(t, http.StatusOK, statusOf(watch(t, h, &stream{}, "")), "the slow reader has been dropped")
		for _, s := range streams {
			assert.Equal(t, maxWaiting+3, strings.Count(s.events(), "event: job"))
		}
		close(slow.stalled)
		assert.True(t, slow.hasEnded())

		close(done)
		for _, s := range streams {
			assert.True(t, s.hasEnded())
		}
	})
}

func statusOf(s *stream) int {
	if s.status == 0 {
		return http.StatusOK
	}
	return s.status
}

func TestWatch_EndsWithTheLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		expired := false
		h := New(Config{Snapshot: (&fakeGroup{}).snapshot, Logger: discard, Authorize: func(r *http.Request, least role.Role) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			if expired {
				return "", fmt.Errorf("log in again")
			}
			return authorize(r, least)
		}})
		s := watch(t, h, &stream{}, "")
		time.Sleep(time.Minute)
		assert.False(t, s.hasEnded())
		mu.Lock()
		expired = true
		mu.Unlock()
		time.Sleep(sse.PingEvery)
		assert.True(t, s.hasEnded())
	})
}

// A store that does not answer for a while loses no change.
func TestWatch_OutlivesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGroup{}
		h := New(Config{Authorize: authorize, Logger: discard, Snapshot: g.snapshot})
		s := watch(t, h, &stream{}, "")
		_ = s.events()
		g.fail(context.DeadlineExceeded)
		g.set(operator.JobSummary{Job: "a"})
		time.Sleep(10 * time.Second)
		assert.NotContains(t, s.events(), "event: ")
		g.fail(nil)
		time.Sleep(10 * time.Second)
		assert.Contains(t, s.events(), `"name":"a"`)
	})
}

// A field that a later version adds to the summary is compared too.
func TestSameSummary_ComparesEachField(t *testing.T) {
	var a, b operator.JobSummary
	assert.True(t, sameSummary(&a, &b))
	at := time.Now()
	a.LastFailure.At, b.LastFailure.At = at, at
	change := func(v reflect.Value) {
		switch into := v.Addr().Interface().(type) {
		case *time.Time:
			*into = time.Unix(1, 0)
		case *operator.Act:
			into.By = "kim"
		case *operator.Counts:
			into.Lost = 1
		case *operator.Failure:
			into.At, into.Error = at, "x"
		default:
			switch v.Kind() {
			case reflect.Int:
				v.SetInt(1)
			case reflect.Bool:
				v.SetBool(true)
			case reflect.String:
				v.SetString("x")
			case reflect.Slice:
				v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			default:
				t.Fatal("no change for ", v.Type())
			}
		}
	}
	for f := range reflect.TypeFor[operator.JobSummary]().Fields() {
		other := b
		change(reflect.ValueOf(&other).Elem().FieldByIndex(f.Index))
		assert.False(t, sameSummary(&a, &other), f.Name)
		assert.False(t, sameSummary(&other, &a), f.Name)
	}
}

func TestComparison(t *testing.T) {
	names := func(changes []jobChange) (out []string) {
		for _, c := range changes {
			out = append(out, c.event+" "+c.job)
		}
		slices.Sort(out)
		return out
	}
	group := func(jobs ...string) (st operator.GroupStatus) {
		for _, text := range jobs {
			name, schedule, _ := strings.Cut(text, "=")
			st.Jobs = append(st.Jobs, operator.JobSummary{Job: name, Schedule: schedule})
		}
		return st
	}
	var c comparison
	assert.Equal(t, []string{"job b", "job d"}, names(c.update(group("b", "d"))))
	assert.Empty(t, c.update(group("b", "d")))
	assert.Equal(t, []string{"job a", "job c", "job e"}, names(c.update(group("a", "b", "c", "d", "e"))))
	assert.Equal(t, []string{"job c", "removed a", "removed d"}, names(c.update(group("b", "c=x", "e"))))
	assert.Equal(t, []string{"job f", "removed b", "removed c", "removed e"}, names(c.update(group("f"))))
	assert.Equal(t, []string{"removed f"}, names(c.update(group())))
}

// BenchmarkComparison is a look at 10,000 jobs, of which 17 have changed.
func BenchmarkComparison(b *testing.B) {
	var st operator.GroupStatus
	for n := range 10_000 {
		st.Jobs = append(st.Jobs, operator.JobSummary{Job: fmt.Sprintf("job-%05d", n), Schedule: "every 1m", Shards: 4})
	}
	c := comparison{jobs: st.Jobs}
	for b.Loop() {
		st.Jobs = slices.Clone(st.Jobs)
		for i := range 17 {
			st.Jobs[i].Counts.Claimed++
		}
		if changes := c.update(st); len(changes) != 17 {
			b.Fatal(len(changes))
		}
	}
}
