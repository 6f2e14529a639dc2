package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/rota-dev/rota/operator"
)

// Pools is the list of the pools of a group.
type Pools struct {
	Version int                   `json:"version"`
	At      time.Time             `json:"at"`
	Pools   []operator.PoolStatus `json:"pools"`
}

// Screen returns the table of the pools.
func (v Pools) Screen(Times) Screen {
	table := Table{Columns: columns("~NAME", "SIZE", "TAKEN", "WAITING", "~INSTANCES")}
	for i := range v.Pools {
		p := &v.Pools[i]
		size := "none"
		if p.Sized {
			size = fmt.Sprint(p.Size)
		}
		table.Rows = append(table.Rows, []string{p.Pool, size, fmt.Sprint(p.Taken), fmt.Sprint(p.Waiting), describeHolders(p.Instances)})
	}
	return Screen{table.orLine("no pools: rota set-pool gives one a size")}
}

// describeHolders lists the slots of instances, and the demand of those that wait.
func describeHolders(instances []operator.PoolInstance) string {
	var all []string
	for _, i := range instances {
		text := fmt.Sprintf("%s %d", i.Instance, i.Slots)
		switch {
		case !i.Alive:
			text += " (gone)"
		case i.Wants > i.Slots:
			text += fmt.Sprintf(" of %d", i.Wants)
		}
		all = append(all, text)
	}
	return orDash(strings.Join(all, ", "))
}

// Names returns the names of the pools.
func (v Pools) Names() []string {
	return namesOf(v.Pools, func(p *operator.PoolStatus) string { return p.Pool })
}

// Items returns the pools.
func (v Pools) Items() []any { return itemsOf(v.Pools) }
