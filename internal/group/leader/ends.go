package leader

import (
	"fmt"

	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/jobname"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// ends is a decoded copy of a claims record.
type ends struct {
	segment string
	record.Ends
}

// decodeEnds returns the function that decodes such copies.
func decodeEnds(keys record.Keys) func(registry.Entry) (ends, error) {
	return func(e registry.Entry) (ends, error) {
		r, err := record.DecodeEnds(e.Value)
		if err == nil {
			err = jobname.Check(r.Job)
		}
		segment := record.Segment(r.Job)
		if err == nil && e.Key != keys.EndsOf(r.Incarnation, segment) {
			err = fmt.Errorf("it names job %.100q of %.100q, but that record has another key", r.Job, r.Incarnation)
		}
		return ends{segment, r}, err
	}
}

// observeEnds applies a change of a copy of a claims record to the view.
func (l *Leader) observeEnds(n feed.Update[ends]) {
	l.idle = false
	if before, ok := l.endsByName[n.Name]; ok {
		delete(l.View.Ends[before.segment], before.Incarnation)
		delete(l.endsByName, n.Name)
	}
	if n.Deleted || n.Unreadable {
		return
	}
	l.endsByName[n.Name] = n.Value
	if l.View.Ends[n.Value.segment] == nil {
		l.View.Ends[n.Value.segment] = planning.EndsOfJob{}
	}
	l.View.Ends[n.Value.segment][n.Value.Incarnation] = n.Value.Claims
}
