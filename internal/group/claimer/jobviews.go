package claimer

import (
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
)

// JobView is a claimer's state of one job at an instant. Nothing of it is changed in place.
type JobView struct {
	Plan     *record.Plan        // nil: none can be read
	Programs map[int]due.Program // by epoch number
	Claims   record.Claims       // as last committed
}

// RequestJobs requests a view of all jobs. The channel receives it unless the claimer ends before.
func (c *Claimer) RequestJobs() <-chan []JobView {
	views := make(chan []JobView, 1)
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	c.Inbox.viewRequests = append(c.Inbox.viewRequests, views)
	c.wake()
	return views
}

// sendJobViews answers the calls of RequestJobs.
func (c *Claimer) sendJobViews() {
	c.Inbox.mu.Lock()
	requests := c.Inbox.viewRequests
	c.Inbox.viewRequests = nil
	c.Inbox.mu.Unlock()
	if len(requests) == 0 {
		return
	}
	views := make([]JobView, 0, len(c.Jobs))
	for _, j := range c.Jobs {
		views = append(views, JobView{j.Plan, j.programs, j.Claims})
	}
	for _, r := range requests {
		r <- views
	}
}
