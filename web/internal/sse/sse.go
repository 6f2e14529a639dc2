// Package sse writes server-sent events.
package sse

import (
	"net/http"
	"time"
)

const (
	// PingEvery keeps proxies from ending an idle stream.
	PingEvery = 15 * time.Second
	// writeWithin is how long a reader may take for an event.
	writeWithin = 10 * time.Second
)

// Stream is the answer to a request, in events.
type Stream struct {
	w   http.ResponseWriter
	out *http.ResponseController
}

// New begins a stream. The caller sends the first text.
func New(w http.ResponseWriter) *Stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would wait for more
	return &Stream{w, http.NewResponseController(w)}
}

// Send sends a text of events. It returns false if the reader has gone or is too slow.
func (s *Stream) Send(text []byte) bool {
	_ = s.out.SetWriteDeadline(time.Now().Add(writeWithin)) // a server without deadlines has none
	_, err := s.w.Write(text)
	return err == nil && s.out.Flush() == nil
}

// Ping sends what readers ignore.
func (s *Stream) Ping() bool { return s.Send([]byte(": ping\n\n")) }
