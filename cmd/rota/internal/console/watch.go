package console

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// watchInterval is how often files are compared with what has been read.
const watchInterval = 2 * time.Second

// watched is content of files that is read again when they change. What cannot be read leaves the last content in force.
type watched struct {
	paths []string
	read  func() error

	seen    []os.FileInfo // at the last read that succeeded
	problem string        // of the last read
}

// refresh reads the content if a file has changed, or if the last attempt failed.
func (w *watched) refresh() (changed bool, err error) {
	// The state before the read: a change during it shows next time.
	var now []os.FileInfo
	for _, path := range w.paths {
		info, err := os.Stat(path)
		if err != nil {
			return false, err
		}
		now = append(now, info)
	}
	if w.isSeen(now) {
		return false, nil
	}
	if err := w.read(); err != nil {
		return false, err
	}
	w.seen = now
	return true, nil
}

func (w *watched) isSeen(now []os.FileInfo) bool {
	if w.seen == nil {
		return false
	}
	for i, info := range now {
		if old := w.seen[i]; !os.SameFile(old, info) || !old.ModTime().Equal(info.ModTime()) || old.Size() != info.Size() || old.Mode() != info.Mode() {
			return false
		}
	}
	return true
}

// watchFiles refreshes contents until ctx ends.
func watchFiles(ctx context.Context, all []*watched, log *slog.Logger) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, w := range all {
			switch changed, err := w.refresh(); {
			case err != nil && err.Error() != w.problem:
				w.problem = err.Error()
				log.Error("a changed file cannot be used; its last content stays in force", "files", w.paths, "error", err)
			case err == nil && (changed || w.problem != ""):
				w.problem = ""
				log.Info("read a file again", "files", w.paths)
			}
		}
	}
}

// certificate is that of TLS, which can be replaced while the server runs.
type certificate struct {
	current atomic.Pointer[tls.Certificate]
}

// load reads the certificate.
func (c *certificate) load(certFile, keyFile string) error {
	next, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	c.current.Store(&next)
	return nil
}

// config returns the configuration of a listener with the certificate.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}
