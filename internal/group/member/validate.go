package member

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/jobname"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// minSessionTTL is the least SessionTTL: less is a number without its unit.
const minSessionTTL = 10 * time.Millisecond

// validate returns all problems of the arguments of New, joined, or nil.
func (o *Options) validate(reg registry.Registry) error {
	var problems []error
	report := func(what string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s%w", what, err))
		}
	}
	if reg == nil {
		report("", ErrNilRegistry)
	}
	_, err := record.NewKeys(o.Namespace, cmp.Or(o.Group, DefaultGroup))
	report("", err)
	if o.Instance != "" {
		report("instance: ", cmp.Or(record.CheckName(o.Instance), jobname.CheckNew(o.Instance)))
	}
	if o.SessionTTL < 0 || o.SessionTTL > 0 && o.SessionTTL < minSessionTTL {
		report("", fmt.Errorf("SessionTTL is %v, below %v", o.SessionTTL, minSessionTTL))
	}
	if o.RestartGrace < 0 || o.RestartGrace > planning.MaxRestartGrace {
		report("", fmt.Errorf("restart grace is %v, not between 0 and %v", o.RestartGrace, planning.MaxRestartGrace))
	} else if o.RestartGrace > 0 && o.Instance == "" {
		report("", errors.New("restart grace requires a name of the instance"))
	}
	if o.Host != "" {
		report("host: ", record.CheckHost(o.Host))
	}
	report("labels: ", errors.Join(record.CheckLabels(o.Labels, record.MaxLabels)...))
	if o.Weight < 0 || o.Weight > planning.MaxWeight {
		report("", fmt.Errorf("weight is %d, not between 0 and %d", o.Weight, planning.MaxWeight))
	}
	_, err = strategy.Known(o.Strategies)
	report("", err)
	return errors.Join(problems...)
}
