package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"
)

// assignment configures a worker process.
type assignment struct {
	Library  string // a key of libraries
	Store    string // URL
	Instance string
	Jobs     []jobSet
	RunLog   string        // path
	TTL      time.Duration // of sessions; zero: the library's default
	Skew     time.Duration // rota's MaxClockSkew; zero: the default
	Defined  bool          // offer a kind of defined jobs
	Log      string        // path; empty discards the log
}

// jobSet describes jobs that differ only in their numbers, from First on.
type jobSet struct {
	First, Count int
	Every        time.Duration // between fires; zero: none
	Spread       bool          // the intervals differ by up to 10 %, so the fires do not coincide
	Shards       int           // of each job
	Takes        time.Duration // by each run
	Revision     int
	CatchUp      bool // run all missed fires
	MaxRunning   int  // zero: the library's default
}

// interval returns the time between fires of a job.
func (s jobSet) interval(job int) time.Duration {
	if !s.Spread {
		return s.Every
	}
	tenth := int64(s.Every / 10)
	d := int64(s.Every) - tenth + 2*tenth*int64(job-s.First)/int64(s.Count)
	return time.Duration(d).Truncate(time.Millisecond)
}

// library runs jobs in a worker process.
type library interface {
	// start returns when this process takes part.
	start(ctx context.Context) error
	// register replaces job sets.
	register(sets []jobSet) error
	// leave shuts down and returns when runs have ended.
	leave(ctx context.Context) error
	// skipped returns how many fires the library has skipped and counted. It is called after
	// leave, and is 0 for a library that does not count them.
	skipped(ctx context.Context) (int, error)
}

// libraries creates each library. The log receives all runs.
var libraries = map[string]func(a assignment, runs *runLog, log *slog.Logger) (library, error){
	"rota":          newRota,
	"floor":         newFloor,
	"gocron":        newGocron,
	"dcron":         newDcron,
	"asynq":         newAsynq,
	"river":         newRiver,
	"etcd-txn":      newEtcdTxn,
	"etcd-election": newElection,
}

// order is a request to a worker, a line of JSON on its input.
type order struct {
	Do      string
	Sets    []jobSet      // for register
	Profile string        // for profile: path
	For     time.Duration // for profile
}

// answer is a line of JSON on a worker's output: that it takes part, or that it has carried
// out an order.
type answer struct {
	To    string // the order, or "start"
	Value int
	Error string
}

// workerVariable holds a worker's assignment as JSON.
const workerVariable = "ROTA_BENCH_WORKER"

// runAsWorker runs a worker and does not return if this process was started as one.
func runAsWorker() {
	text := os.Getenv(workerVariable)
	if text == "" {
		return
	}
	var a assignment
	err := json.Unmarshal([]byte(text), &a)
	if err == nil {
		err = runWorker(a, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench worker %s: %v\n", a.Instance, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runWorker takes part until SIGTERM, or until its input ends.
func runWorker(a assignment, in io.Reader, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	create, ok := libraries[a.Library]
	if !ok {
		return fmt.Errorf("unknown library %q", a.Library)
	}
	runs, err := openRunLog(a.RunLog)
	if err != nil {
		return err
	}
	log, err := openLog(a.Log)
	if err != nil {
		return err
	}
	lib, err := create(a, runs, log)
	if err != nil {
		return err
	}
	if err := lib.start(ctx); err != nil {
		return err
	}
	answers := json.NewEncoder(out)
	if err := answers.Encode(answer{To: "start"}); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- serveOrders(ctx, lib, json.NewDecoder(in), answers) }()
	select {
	case <-ctx.Done():
		return lib.leave(context.WithoutCancel(ctx))
	case err := <-ended:
		return err
	}
}

func openLog(path string) (*slog.Logger, error) {
	if path == "" {
		return slog.New(slog.DiscardHandler), nil
	}
	f, err := os.Create(path)
	return slog.New(slog.NewTextHandler(f, nil)), err
}

func serveOrders(ctx context.Context, lib library, orders *json.Decoder, answers *json.Encoder) error {
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a := answer{To: o.Do}
		var err error
		if a.Value, err = carryOut(ctx, lib, o); err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func carryOut(ctx context.Context, lib library, o order) (value int, err error) {
	switch o.Do {
	case "register":
		return 0, lib.register(o.Sets)
	case "leave":
		return 0, lib.leave(ctx)
	case "skipped":
		return lib.skipped(ctx)
	case "profile":
		return 0, startProfile(o.Profile, o.For)
	}
	return 0, fmt.Errorf("unknown order %q", o.Do)
}

// startProfile writes a profile of the processor time from now on.
func startProfile(path string, d time.Duration) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	time.AfterFunc(d, func() {
		pprof.StopCPUProfile()
		f.Close()
	})
	return nil
}
