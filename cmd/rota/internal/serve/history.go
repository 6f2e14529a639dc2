package serve

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/historyurl"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/history"
)

const (
	// historyOpenTimeout bounds the attempt at the start to create the tables.
	historyOpenTimeout = 15 * time.Second
	// historyCloseTimeout bounds the time at the end in which waiting records are written.
	historyCloseTimeout = 3 * time.Second
)

// checkedSink is a sink that can be checked at the start.
type checkedSink interface {
	history.Sink
	check(ctx context.Context) error
}

// openHistory checks the settings of the history and returns what records the runs that end, if the file has a history. Call
// start when the executor exists, and stop after it has ended. A database that does not answer stops no job: the recorder
// writes later.
func (s *server) openHistory(h jobsfile.History) (start func() (stop func()), err error) {
	if h.URL == "" {
		return func() func() { return func() {} }, nil
	}
	sink, closeSink, err := s.openSink(h)
	if err != nil {
		return nil, &exit.Error{Code: exit.Usage, Err: err}
	}
	return func() func() { return s.startHistory(h, sink, closeSink) }, nil
}

func (s *server) startHistory(h jobsfile.History, sink checkedSink, closeSink func()) (stop func()) {
	recorder := history.New(sink, history.Options{
		Namespace: s.target.namespace, Group: s.target.group, Instance: s.ex.Instance(), Keep: h.Keep, Queue: h.Queue, Logger: s.log,
		Logs: history.LogOptions{Off: !h.KeepsLogs(), Run: h.LogSize, Mask: s.secrets.Mask, Skip: s.secretLogs.has},
	})
	s.ex.Observe(recorder.Observer())
	opening, cancel := context.WithTimeout(context.Background(), historyOpenTimeout)
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		switch err := sink.check(opening); {
		case err == nil:
			s.log.Info("recording history", "history", historyurl.Redact(h.URL))
		case !errors.Is(opening.Err(), context.Canceled):
			s.log.Warn("history not ready: jobs run, and records wait", "history", historyurl.Redact(h.URL), "error", err)
		}
	}()
	return func() {
		cancel()
		<-opened
		shutDownRecorder(recorder)
		closeSink()
	}
}

// shutDownRecorder writes the records that wait. The recorder logs how many it could not write.
func shutDownRecorder(r *history.Recorder) {
	for _, timeout := range []time.Duration{historyCloseTimeout, time.Second} { // the second, for that log line
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		err := r.Shutdown(ctx)
		cancel()
		if err == nil {
			return
		}
	}
}

// openSink returns the sink of the file. It makes no connection.
func (o *options) openSink(h jobsfile.History) (sink checkedSink, closeSink func(), err error) {
	if h.JSONLines() {
		file := appendedFile(historyurl.File(h.URL))
		lines := history.JSONLines(file)
		return &linesSink{lines, lines.(history.LogSink), file}, func() {}, nil
	}
	connection, err := h.Connection(o.hostOfRun())
	if err != nil {
		return nil, nil, err
	}
	db, dialect, err := historyurl.Open(h.URL, connection)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(1) // for the one goroutine of the recorder: a fleet has many processes
	store, err := history.SQL(db, dialect, history.SQLOptions{Retention: h.Retention, RowsPerJob: h.RowsPerJob, LogRetention: h.LogRetention})
	if err != nil {
		return nil, nil, err
	}
	return &tablesSink{SQLStore: store, db: db, dialect: dialect, migrated: h.TablesExist}, func() { _ = db.Close() }, nil
}

// tablesSink is a database. A write creates or updates the tables first, as long as that has failed.
type tablesSink struct {
	*history.SQLStore
	db      *sql.DB
	dialect history.Dialect

	mu       sync.Mutex
	migrated bool
}

func (t *tablesSink) check(ctx context.Context) error {
	if err := t.migrate(ctx); err != nil {
		return err
	}
	return t.db.PingContext(ctx)
}

func (t *tablesSink) migrate(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.migrated {
		return nil
	}
	err := history.Migrate(ctx, t.db, t.dialect)
	t.migrated = err == nil
	return err
}

// Write implements history.Sink.
func (t *tablesSink) Write(ctx context.Context, b history.Batch) error {
	if err := t.migrate(ctx); err != nil {
		return err
	}
	return t.SQLStore.Write(ctx, b)
}

// WriteLogs implements history.LogSink.
func (t *tablesSink) WriteLogs(ctx context.Context, pieces []history.Log) error {
	if err := t.migrate(ctx); err != nil {
		return err
	}
	return t.SQLStore.WriteLogs(ctx, pieces)
}

// secretLogs are the names of the jobs of which nothing that their runs print is recorded.
type secretLogs struct {
	names atomic.Pointer[map[string]bool]
}

// of records the jobs of files.
func (l *secretLogs) of(files ...*jobsfile.File) {
	names := map[string]bool{}
	for _, f := range files {
		for _, j := range f.Jobs {
			if j.SecretLog {
				names[j.Name] = true
			}
		}
	}
	l.names.Store(&names)
}

func (l *secretLogs) has(job string) bool {
	names := l.names.Load()
	return names != nil && (*names)[job]
}

// linesSink is a file with lines of JSON.
type linesSink struct {
	history.Sink
	history.LogSink
	file appendedFile
}

func (l *linesSink) check(context.Context) error {
	_, err := l.file.Write(nil)
	return err
}

// appendedFile is a file that each write opens, so that another program may rename it at any time.
type appendedFile string

// Write implements io.Writer.
func (a appendedFile) Write(p []byte) (int, error) {
	f, err := os.OpenFile(string(a), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := f.Write(p)
	return n, errors.Join(err, f.Close())
}
