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

// Views are a claimer's state at an instant.
type Views struct {
	Jobs  []JobView
	Pools map[string]PoolView // nil: no job has had one
}

// RequestViews requests views of all jobs and pools. The channel receives them unless the claimer ends before.
func (c *Claimer) RequestViews() <-chan Views {
	views := make(chan Views, 1)
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	c.Inbox.viewRequests = append(c.Inbox.viewRequests, views)
	c.wake()
	return views
}

// sendViews answers the calls of RequestViews.
func (c *Claimer) sendViews() {
	c.Inbox.mu.Lock()
	requests := c.Inbox.viewRequests
	c.Inbox.viewRequests = nil
	c.Inbox.mu.Unlock()
	if len(requests) == 0 {
		return
	}
	views := Views{Jobs: make([]JobView, 0, len(c.Jobs)), Pools: c.viewPools()}
	for _, j := range c.Jobs {
		views.Jobs = append(views.Jobs, JobView{j.Plan, j.programs, j.Claims})
	}
	for _, r := range requests {
		r <- views
	}
}
