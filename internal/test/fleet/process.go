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

	"github.com/rota-dev/rota/internal/test/child"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/tcpproxy"
)

// Process is a worker of a fleet, with proxies of its own on its way to the store.
type Process struct {
	Instance string
	Client   string
	proc     *child.Process
	proxies  []*tcpproxy.Proxy
	stdin    io.WriteCloser
	stderr   *os.File
	heard    chan struct{} // closed when all it said has been read
	stopped  bool          // to leave, or killed

	mu    sync.Mutex
	said  []judge.Event
	open  map[int]*judge.Call // by number: runs that have not returned
	joins time.Time           // when it was about to join; zero before that
	err   error               // of reading what it says
}

// startProcess starts a worker. What it logs goes to a file in dir.
func startProcess(s *Server, a assignment, dir string) (*Process, error) {
	p := &Process{Instance: a.Instance, Client: a.Client, heard: make(chan struct{}), open: map[int]*judge.Call{}}
	if err := p.start(s, a, dir); err != nil {
		p.release()
		return nil, fmt.Errorf("start %s: %w", a.Client, err)
	}
	return p, nil
}

func (p *Process) start(s *Server, a assignment, dir string) error {
	var addrs []string
	for _, upstream := range s.Addrs() {
		proxy, err := tcpproxy.Listen(upstream)
		if err != nil {
			return err
		}
		p.proxies = append(p.proxies, proxy)
		addrs = append(addrs, proxy.Addr())
	}
	a.Registry = s.url(addrs)
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
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
	go p.listen(out)
	return nil
}

// listen takes in what the process says.
func (p *Process) listen(out io.Reader) {
	defer close(p.heard)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			p.mu.Lock()
			p.err = errors.Join(p.err, fmt.Errorf("%s said %.200q: %w", p.Client, lines.Text(), err))
			p.mu.Unlock()
			continue
		}
		p.hear(&l)
	}
}

func (p *Process) hear(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !l.Joins.IsZero() {
		p.joins = l.Joins
		return
	}
	if l.End.IsZero() {
		call := l.Call
		p.open[l.Number] = &call
		p.said = append(p.said, judge.Event{Call: &call})
		return
	}
	p.said = append(p.said, judge.Event{Call: p.open[l.Number], End: l.End, Canceled: l.Canceled})
	delete(p.open, l.Number)
}

// readLines returns what the process has said since the last take.
func (p *Process) readLines() ([]judge.Event, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	said := p.said
	p.said = nil
	return said, p.err
}

// joined returns when the process was about to join.
func (p *Process) joined() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.joins
}

// resize gives the process another total for the resized job.
func (p *Process) resize(s size) error { return json.NewEncoder(p.stdin).Encode(s) }

// Kill ends the process at once, and with it all that it ran.
func (p *Process) Kill() {
	p.stopped = true
	at := time.Now()
	p.proc.Kill()
	<-p.heard
	p.mu.Lock()
	for _, call := range p.open {
		p.said = append(p.said, judge.Event{Call: call, End: at, Canceled: at})
	}
	clear(p.open)
	p.mu.Unlock()
	p.release()
}

// Stop tells the process to go in good order. Telling it again does nothing: while it ends
// it would die of it.
func (p *Process) Stop() {
	if !p.stopped {
		p.stopped = true
		p.proc.Terminate()
	}
}

// Leave tells the process to go in good order, and returns when it has.
func (p *Process) Leave(within time.Duration) error {
	p.Stop()
	select {
	case <-p.proc.Done():
	case <-time.After(within):
		p.Kill()
		return fmt.Errorf("%s was told to stop, and had not after %v", p.Client, within)
	}
	<-p.heard
	p.release()
	if err := p.proc.Err(); err != nil {
		return fmt.Errorf("%s: %w", p.Client, err)
	}
	return nil
}

// Pause stops the process in its tracks, until Resume.
func (p *Process) Pause() error { return p.proc.Pause() }

// Resume lets it go on.
func (p *Process) Resume() error { return p.proc.Resume() }

// CutOff keeps the process from the store without telling it, until heal.
func (p *Process) CutOff() (heal func()) {
	return p.each((*tcpproxy.Proxy).Blackhole)
}

// Hold holds what goes one way between the process and the store, until release.
func (p *Process) Hold(d tcpproxy.Direction) (release func()) {
	return p.each(func(x *tcpproxy.Proxy) func() { return x.OneWay(d) })
}

// Sent returns how many bytes have reached the store.
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

// lastLog returns the end of what the process has logged.
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
