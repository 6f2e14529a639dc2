package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// runLog is a file of runs that a worker and the judge map into memory. Recording a run
// needs no system call, and a killed worker loses no record.
type runLog struct {
	path   string
	mapped []byte
	count  *atomic.Int64
	all    []run
}

// run is a record of the log. Times are Unix nanoseconds.
type run struct {
	job, shard, attempt, _ int32
	fire                   int64 // the scheduled instant
	start                  int64
	end                    int64 // zero while the run lasts
}

const (
	runLogCapacity = 4 << 20 // runs; the file is sparse
	runLogHeader   = 64
	runLogBytes    = runLogHeader + runLogCapacity*int64(unsafe.Sizeof(run{}))
)

// createRunLog creates a log. The caller removes it.
func createRunLog() (*runLog, error) {
	dir := "/dev/shm" // the kernel never writes its pages to the disk that the store syncs
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		dir = ""
	}
	f, err := os.CreateTemp(dir, "rota-bench-*.runs")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(runLogBytes); err != nil {
		os.Remove(f.Name())
		return nil, err
	}
	return openRunLog(f.Name())
}

func openRunLog(path string) (*runLog, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping remains
	mapped, err := syscall.Mmap(int(f.Fd()), 0, int(runLogBytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &runLog{
		path:   path,
		mapped: mapped,
		count:  (*atomic.Int64)(unsafe.Pointer(&mapped[0])),
		all:    unsafe.Slice((*run)(unsafe.Pointer(&mapped[runLogHeader])), runLogCapacity),
	}, nil
}

// begin records a run that starts now. The caller sets its end.
func (l *runLog) begin(job, shard, attempt int, fire time.Time) *run {
	n := l.count.Add(1) - 1
	if n >= runLogCapacity {
		panic("run log is full")
	}
	r := &l.all[n]
	*r = run{job: int32(job), shard: int32(shard), attempt: int32(attempt), fire: fire.UnixNano(), start: time.Now().UnixNano()}
	return r
}

func (r *run) finish() { atomic.StoreInt64(&r.end, time.Now().UnixNano()) }

// runs returns the records from number from on. The last ones of a running worker may be
// incomplete.
func (l *runLog) runs(from int64) []run { return l.all[from:l.count.Load()] }

// remove unmaps and deletes the log.
func (l *runLog) remove() {
	_ = syscall.Munmap(l.mapped)
	_ = os.Remove(l.path)
}
