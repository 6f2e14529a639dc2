package web

import (
	"net/http"
	"time"

	"github.com/rota-dev/rota/web/internal/sse"
)

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
	out := sse.New(w)
	ping := time.NewTicker(sse.PingEvery)
	defer ping.Stop()
	for ok := out.Send([]byte("retry: 3000\n\n")); ok; {
		select {
		case <-changed:
			ok = out.Send([]byte("data: changed\n\n"))
			if _, changed, err = c.feed.read(r.Context()); err != nil {
				return nil // the browser asks again
			}
		case <-ping.C:
			ok = out.Ping()
		case <-r.Context().Done():
			return nil
		case <-c.feed.ctx.Done():
			return nil
		}
	}
	return nil
}
