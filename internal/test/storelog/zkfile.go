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

// zkReader reads the transaction log of a server below dir, one file after another. A server begins a file when it
// starts and when one is full.
type zkReader struct {
	dir  string
	file *logFile
	last uint64 // the zxid of the last transaction that was read
}

// read calls take with each transaction since the last call, up to through, and with the number of the one before it
// in this log. The server may still drop later ones.
func (r *zkReader) read(through uint64, take func(before uint64, t *zkTxn)) error {
	for {
		next, err := r.nextFile(through)
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
		r.close() // it was complete before it was read to its end
		if r.file, err = openLog(next); err != nil {
			return err
		}
	}
}

// nextFile returns the path of the next file if it begins at or before the transaction through, otherwise "".
func (r *zkReader) nextFile(through uint64) (string, error) {
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

// openLog opens a file, which begins with a magic word, a version and the number of the database.
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

// read calls take with the complete transactions up to through. Zeros follow the last one, since the server
// allocates files in advance.
func (l *logFile) read(through uint64, take func(*zkTxn)) error {
	for {
		var head [12]byte // a checksum and the length of the record
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
