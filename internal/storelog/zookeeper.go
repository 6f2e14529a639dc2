package storelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/judge"
	"github.com/rota-dev/rota/registry"
)

// zkLog reads the transaction log of a server as it grows.
type zkLog struct {
	*pending
	addr string
	dir  string
	root string
	stop context.CancelFunc
	done chan struct{}

	exists  map[registry.Key]bool
	owned   map[int64]map[string]bool // paths of ephemeral znodes, by ZooKeeper's session
	written uint64                    // the last zxid
}

// ZooKeeper reads the log of the server at addr, which keeps it below dir. It has to be on
// this machine and to have been empty; if it is a member of an ensemble, it must never be
// down. root is the namespace that the registry was opened with.
func ZooKeeper(ctx context.Context, addr, dir, root string) (Log, error) {
	reading, stop := context.WithCancel(context.Background())
	l := &zkLog{
		pending: newPending(), addr: addr, dir: dir, root: root, stop: stop, done: make(chan struct{}),
		exists: map[registry.Key]bool{}, owned: map[int64]map[string]bool{},
	}
	go func() {
		defer close(l.done)
		l.fail(l.follow(reading))
	}()
	if err := l.Sync(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("read ZooKeeper's log: %w", err), l.Close())
	}
	return l, nil
}

// errRefused is all that the log tells of why.
var errRefused = errors.New("refused by the server")

// pollEvery is how often the log is looked at.
const pollEvery = 2 * time.Millisecond

// follow reads one file after another. A server begins a new one when it starts, and when
// one is full.
func (l *zkLog) follow(ctx context.Context) error {
	var file *logFile
	defer func() { file.close() }()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		next, err := l.after(file)
		if err != nil {
			return err
		}
		if file != nil {
			if err := file.read(l.take); err != nil {
				return err
			}
		}
		if next != "" { // file had been ended before it was read to its end
			file.close()
			if file, err = openLog(next); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// after returns the path of the log that follows, or "".
func (l *zkLog) after(file *logFile) (string, error) {
	all, err := filepath.Glob(filepath.Join(l.dir, "version-2", "log.*"))
	if err != nil {
		return "", err
	}
	first := func(path string) uint64 {
		n, _ := strconv.ParseUint(strings.TrimPrefix(filepath.Ext(path), "."), 16, 64)
		return n
	}
	slices.SortFunc(all, func(a, b string) int { return int(int64(first(a) - first(b))) })
	for _, path := range all {
		if file == nil || first(path) > first(file.path) {
			return path, nil
		}
	}
	return "", nil
}

// take makes a commit of a transaction.
func (l *zkLog) take(t *zkTxn) {
	if t.zxid <= l.written {
		return // logged again after a restart
	}
	l.written = t.zxid
	c := commit(t.zxid, t.at)
	if t.failed() {
		c.Err = errRefused
		l.add(t.zxid, c)
		return
	}
	changes := map[string]*zkChange{}
	var order []string
	for _, s := range t.parts {
		switch s.kind {
		case zkCreate, zkSetData, zkDelete:
			if changes[s.path] == nil {
				changes[s.path] = &zkChange{}
				order = append(order, s.path)
			}
			changes[s.path].apply(s)
		case zkCloseSession:
			for path := range l.owned[t.session] {
				changes[path] = &zkChange{gone: true}
				order = append(order, path)
			}
			delete(l.owned, t.session)
		}
	}
	closing := slices.ContainsFunc(t.parts, func(s zkPart) bool { return s.kind == zkCloseSession })
	for _, path := range order {
		l.change(&c, path, changes[path], t.session)
	}
	switch {
	case closing && c.Ended == "", !closing && c.Opened == "" && c.Ended == "" && len(c.Then) == 0:
		l.add(t.zxid)
		return
	case c.Ended != "" || c.Opened != "":
		c.Then = nil // owned keys go with their session
	}
	l.add(t.zxid, c)
}

// zkChange is what a transaction makes of a znode.
type zkChange struct {
	made, gone, ephemeral bool
	data                  []byte
}

func (c *zkChange) apply(s zkPart) {
	switch s.kind {
	case zkCreate:
		c.made, c.gone, c.ephemeral, c.data = true, false, s.ephemeral, s.data
	case zkSetData:
		c.data = s.data
	case zkDelete:
		c.gone = true
	}
}

// change adds to c what a change of a znode means.
func (l *zkLog) change(c *judge.Commit, path string, z *zkChange, session int64) {
	if z.made && z.gone {
		return // it only made sure that there was none
	}
	if z.made && z.ephemeral {
		if l.owned[session] == nil {
			l.owned[session] = map[string]bool{}
		}
		l.owned[session][path] = true
	}
	if z.gone {
		delete(l.owned[session], path)
	}
	name, ok := trimRoot(path, l.root)
	if !ok {
		return
	}
	if id, ok := strings.CutPrefix(name, ":sessions/"); ok {
		switch {
		case z.made:
			c.Opened = registry.SessionID(id)
		case z.gone:
			c.Ended = registry.SessionID(id)
		}
		return
	}
	if strings.HasPrefix(name, ":") {
		return
	}
	key := registry.Key(name)
	line, value, _ := bytes.Cut(z.data, []byte("\n"))
	word, _, _ := strings.Cut(strings.TrimPrefix(string(line), "rota1 "), " ")
	switch was := l.exists[key]; {
	case z.gone || word == "none" || len(line) == 0: // no value: for those below it, or no more
		delete(l.exists, key)
		if was {
			c.Then = append(c.Then, registry.Op{Kind: registry.OpDelete, Key: key})
		}
	case was:
		c.Then = append(c.Then, registry.Op{Kind: registry.OpSet, Key: key, Value: value})
	case key.Owned():
		l.exists[key] = true
		c.Then = append(c.Then, registry.Op{Kind: registry.OpCreateOwned, Key: key, Value: value, Session: ownerIn(string(line))})
	default:
		l.exists[key] = true
		c.Then = append(c.Then, registry.Op{Kind: registry.OpCreate, Key: key, Value: value})
	}
}

// ownerIn returns the session that the line before a value names.
func ownerIn(line string) registry.SessionID {
	for _, word := range strings.Fields(line) {
		if id, ok := strings.CutPrefix(word, "owner="); ok {
			return registry.SessionID(id)
		}
	}
	return ""
}

// Sync asks the server for the last transaction that it has executed.
func (l *zkLog) Sync(ctx context.Context) error {
	return l.reach(ctx, func(ctx context.Context) (uint64, error) { return lastZxid(ctx, l.addr) })
}

// lastZxid asks by a command that servers answer without a session.
func lastZxid(ctx context.Context, addr string) (uint64, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return 0, err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(answer)) {
		if zxid, ok := strings.CutPrefix(strings.TrimSpace(line), "Zxid: 0x"); ok {
			return strconv.ParseUint(zxid, 16, 64)
		}
	}
	return 0, fmt.Errorf("%s does not tell its last transaction: %.100q", addr, answer)
}

// Close ends the reading.
func (l *zkLog) Close() error {
	l.stop()
	<-l.done
	return nil
}

// logFile is a file of transactions.
type logFile struct {
	path string
	f    *os.File
	at   int64 // read so far
}

// openLog opens a log, which begins with a magic word, a version and the database's number.
func openLog(path string) (*logFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &logFile{path: path, f: f, at: 16}, nil
}

func (l *logFile) close() {
	if l != nil {
		l.f.Close()
	}
}

// read calls take with the transactions that are whole. The file is longer than what is
// written: zeros follow.
func (l *logFile) read(take func(*zkTxn)) error {
	for {
		var head [12]byte // a checksum and the length of what follows
		if n, err := l.f.ReadAt(head[:], l.at); n < len(head) {
			return ended(err)
		}
		length := int64(be32(head[8:]))
		if length <= 0 {
			return nil
		}
		record := make([]byte, length+1)
		if n, err := l.f.ReadAt(record, l.at+12); n < len(record) {
			return ended(err)
		}
		if record[length] != 'B' || !intact(head[:8], record[:length]) {
			return nil // it is being written
		}
		t, err := parseTxn(record[:length])
		if err != nil {
			return fmt.Errorf("%s at byte %d: %w", l.path, l.at, err)
		}
		take(t)
		l.at += 12 + length + 1
	}
}
