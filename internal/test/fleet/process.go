package fleet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/test/judge"
)

// Process is a worker process of a fleet, with its own proxies to the store.
type Process struct {
	Instance   string
	Client     string
	proc       *child.Process
	proxies    []*tcpproxy.Proxy
	stdin      io.WriteCloser
	stderr     *os.File
	outputRead chan struct{} // closed when all its output has been read
	stopped    bool          // by a signal, or killed

	mu     sync.Mutex
	events []judge.Event       // not yet read
	open   map[int]*judge.Call // by number: runs that have not returned
	ended  []deleted           // not yet read
	joins  time.Time           // when it began to join; zero before that
	err    error               // of reading its output
}

// startProcess starts a worker, which logs to a file in dir. It is this program, or another one.
func startProcess(s *Server, a assignment, program, dir string) (*Process, error) {
	p := &Process{Instance: a.Instance, Client: a.Client, outputRead: make(chan struct{}), open: map[int]*judge.Call{}}
	if err := p.start(s, a, program, dir); err != nil {
		p.release()
		return nil, fmt.Errorf("start %s: %w", a.Client, err)
	}
	return p, nil
}

func (p *Process) start(s *Server, a assignment, program, dir string) error {
	var addrs []string
	for _, upstream := range s.Addrs() {
		proxy, err := tcpproxy.Listen(upstream)
		if err != nil {
			return err
		}
		p.proxies = append(p.proxies, proxy)
		addrs = append(addrs, proxy.Addr())
	}
	a.Registry = s.URL(addrs)
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return err
		}
	}
	if p.stderr, err = os.Create(filepath.Join(dir, a.Client+".log")); err != nil {
		return err
	}
	out, in := io.Pipe()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), assignmentVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = in, p.stderr
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if p.proc, err = child.Start(cmd); err != nil {
		return err
	}
	go func() {
		<-p.proc.Done()
		in.Close()
	}()
	go p.readOutput(out)
	return nil
}

// readOutput reads the output of the process.
func (p *Process) readOutput(out io.Reader) {
	defer close(p.outputRead)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			p.mu.Lock()
			p.err = errors.Join(p.err, fmt.Errorf("%s wrote %.200q: %w", p.Client, lines.Text(), err))
			p.mu.Unlock()
			continue
		}
		p.addLine(&l)
	}
}

func (p *Process) addLine(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.Deleted != nil {
		p.ended = append(p.ended, *l.Deleted)
		return
	}
	if !l.Joins.IsZero() {
		p.joins = l.Joins
		return
	}
	if l.End.IsZero() {
		call := l.Call
		p.open[l.Number] = &call
		p.events = append(p.events, judge.Event{Call: &call})
		return
	}
	p.events = append(p.events, judge.Event{Call: p.open[l.Number], End: l.End, Canceled: l.Canceled})
	delete(p.open, l.Number)
}

// readLines returns the reports of the process since the last call.
func (p *Process) readLines() ([]judge.Event, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	events := p.events
	p.events = nil
	return events, p.err
}

// takeDeleted returns the Deletes that the process has reported since the last call.
func (p *Process) takeDeleted() []deleted {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.ended
	p.ended = nil
	return all
}

// joined returns when the process began to join.
func (p *Process) joined() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.joins
}

// resize orders the process to register another total of the resized job.
func (p *Process) resize(s size) error { return json.NewEncoder(p.stdin).Encode(s) }

// Kill ends the process, and its runs, at once.
func (p *Process) Kill() {
	p.stopped = true
	at := time.Now()
	p.proc.Kill()
	<-p.outputRead
	p.mu.Lock()
	for _, call := range p.open {
		p.events = append(p.events, judge.Event{Call: call, End: at, Canceled: at})
	}
	clear(p.open)
	p.mu.Unlock()
	p.release()
}

// Stop sends the process the signal to leave. A second call does nothing, because a second signal would end the
// process at once.
func (p *Process) Stop() {
	if !p.stopped {
		p.stopped = true
		p.proc.Terminate()
	}
}

// Leave shuts the process down with a drain, and waits until it has ended.
func (p *Process) Leave(within time.Duration) error {
	p.Stop()
	select {
	case <-p.proc.Done():
	case <-time.After(within):
		p.Kill()
		return fmt.Errorf("%s had not ended %v after the signal to leave", p.Client, within)
	}
	<-p.outputRead
	p.release()
	if err := p.proc.Err(); err != nil {
		return fmt.Errorf("%s: %w", p.Client, err)
	}
	return nil
}

// Pause stops the process (SIGSTOP) until Resume.
func (p *Process) Pause() error { return p.proc.Pause() }

// Resume continues the process.
func (p *Process) Resume() error { return p.proc.Resume() }

// CutOff drops all traffic between the process and the store until heal.
func (p *Process) CutOff() (heal func()) {
	return p.each((*tcpproxy.Proxy).Blackhole)
}

// Hold holds the traffic in one direction until release.
func (p *Process) Hold(d tcpproxy.Direction) (release func()) {
	return p.each(func(x *tcpproxy.Proxy) func() { return x.OneWay(d) })
}

// Sent returns how many bytes of the process have reached the store.
func (p *Process) Sent() int64 {
	n := int64(0)
	for _, x := range p.proxies {
		n += x.Traffic(tcpproxy.ToServer)
	}
	return n
}

func (p *Process) each(fault func(*tcpproxy.Proxy) func()) (undo func()) {
	var undos []func()
	for _, x := range p.proxies {
		undos = append(undos, fault(x))
	}
	return func() {
		for _, undo := range undos {
			undo()
		}
	}
}

// hasEnded reports whether the process has ended.
func (p *Process) hasEnded() bool {
	select {
	case <-p.proc.Done():
		return true
	default:
		return false
	}
}

// lastLog returns the end of the process's log.
func (p *Process) lastLog() []byte {
	log, err := os.ReadFile(p.stderr.Name())
	if err != nil {
		return []byte(err.Error())
	}
	return log[max(0, len(log)-2000):]
}

func (p *Process) release() {
	for _, x := range p.proxies {
		x.Close()
	}
	if p.stderr != nil {
		p.stderr.Close()
	}
}
