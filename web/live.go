package web

import (
	"fmt"
	"net/http"
	"time"
)

// pingEvery keeps proxies from ending a stream.
const pingEvery = 15 * time.Second

// writeWithin is how long a reader may take for an event.
const writeWithin = 10 * time.Second

// streamEvents tells a browser when to fetch its page again. The event has no content: the page shows only what its user may see.
func (c *Console) streamEvents(w http.ResponseWriter, r *request) error {
	if !c.feed.addStream() {
		return problemf(http.StatusServiceUnavailable, "Too many browsers follow this console.")
	}
	defer c.feed.removeStream()
	_, changed, err := c.feed.read(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx
	stream := http.NewResponseController(w)
	send := func(text string) bool {
		_ = stream.SetWriteDeadline(time.Now().Add(writeWithin)) // a server that has none needs none
		_, err := fmt.Fprint(w, text)
		return err == nil && stream.Flush() == nil
	}
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for ok := send("retry: 3000\n\n"); ok; {
		select {
		case <-changed:
			ok = send("data: changed\n\n")
			if _, changed, err = c.feed.read(r.Context()); err != nil {
				return nil // the browser asks again
			}
		case <-ping.C:
			ok = send(": ping\n\n")
		case <-r.Context().Done():
			return nil
		case <-c.feed.ctx.Done():
			return nil
		}
	}
	return nil
}
