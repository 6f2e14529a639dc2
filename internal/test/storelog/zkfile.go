package storelog

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// zkReader reads the transaction log that a server keeps below dir, one file after
// another. A server begins a new one when it starts, and when one is full.
type zkReader struct {
	dir  string
	file *logFile
	last uint64 // the zxid of what was read last
}

// read calls take with what has come since the last call, up to the transaction through,
// and with the number of the transaction before it in this log. What follows a server may
// still take back.
func (r *zkReader) read(through uint64, take func(before uint64, t *zkTxn)) error {
	for {
		next, err := r.after(through)
		if err != nil {
			return err
		}
		if r.file != nil {
			err := r.file.read(through, func(t *zkTxn) {
				take(r.last, t)
				r.last = t.zxid
			})
			if err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		r.close() // it had been ended before it was read to its end
		if r.file, err = openLog(next); err != nil {
			return err
		}
	}
}

// after returns the path of the log that follows, if it begins at or before the
// transaction through, or "".
func (r *zkReader) after(through uint64) (string, error) {
	all, err := filepath.Glob(filepath.Join(r.dir, "version-2", "log.*"))
	if err != nil {
		return "", err
	}
	first := func(path string) uint64 {
		n, _ := strconv.ParseUint(strings.TrimPrefix(filepath.Ext(path), "."), 16, 64)
		return n
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(first(a), first(b)) })
	for _, path := range all {
		if (r.file == nil || first(path) > first(r.file.path)) && first(path) <= through {
			return path, nil
		}
	}
	return "", nil
}

func (r *zkReader) close() { r.file.close() }

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

// read calls take with the transactions that are whole, up to the one of number through.
// The file is longer than what is written: zeros follow.
func (l *logFile) read(through uint64, take func(*zkTxn)) error {
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
		if t.zxid > through {
			return nil
		}
		take(t)
		l.at += 12 + length + 1
	}
}
