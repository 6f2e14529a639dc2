package member

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// DefaultGroup is the group of a member whose Options name none.
const DefaultGroup = "default"

// Options are options of New.
type Options struct {
	Namespace  string
	Group      string        // "" means "default"
	Instance   string        // unique among live instances; "" means the host name and a random part
	SessionTTL time.Duration // as requested from the store; 0 means registry.DefaultSessionTTL
	// MaxClockSkew is the allowed distance of this clock from the median of the fleet's clocks. A
	// member with a skewed clock claims nothing. Three instances are needed to find out which
	// clock is wrong. Shards with claims far ahead of their owner's clock wait until the clock has
	// caught up; the owner logs that, and Status.Problem shows it. 0 means 5 s. A negative value
	// disables the check.
	MaxClockSkew time.Duration
	// RestartGrace is the time for which this member's shards wait for an instance of the same
	// name to return, after this one has left or its session has expired, before they move. The
	// leader counts it from when it observes the end; a later leader counts anew. It requires
	// Instance. 0 means that shards move at once.
	RestartGrace time.Duration
	Host         string // on which this process runs, for operators; "" means the host's name
	// Labels describe the instance to jobs that run on some instances only, and to strategies.
	// They are fixed for the life of the member. There may be 64, with keys of 1 to 100 bytes and
	// values of up to 200, in UTF-8 without control characters.
	Labels map[string]string
	// Weight is this member's share of shards relative to a member of weight 1, up to MaxWeight.
	// The strategy "sticky" assigns each member its share by weight, of every job and of all jobs
	// together, to within one shard; the other built-in strategies ignore weights. It is fixed
	// for the life of the member. 0 means 1.
	Weight int
	// Strategies are strategies of your own, by the names that jobs refer to. Every process that
	// may lead needs them. The built-in names are "sticky", "average", "odevity", "rotate" and
	// "single".
	Strategies map[string]strategy.Func
	// NoClocks states that the work depends on no clock, so that clocks are not compared.
	NoClocks bool
	Work     claimer.Work
	Events   event.Hooks
	Logger   *slog.Logger // nil means slog.Default()
	// Clock returns the time of day, for tests with clocks that differ. Durations are measured by
	// package time nevertheless. nil means time.Now.
	Clock func() time.Time
}

// ErrNilRegistry is returned for a nil registry, which would panic in a goroutine later.
var ErrNilRegistry = errors.New("registry is nil")

// New returns a member of a group. It sends nothing to the store before Run.
func New(reg registry.Registry, o Options) (*Member, error) {
	o.Group = cmp.Or(o.Group, DefaultGroup)
	if err := o.validate(reg); err != nil {
		return nil, err
	}
	if o.Instance == "" {
		o.Instance = generateName()
	}
	o.Logger, o.Clock = contain.Logger(o.Logger), contain.Clock(o.Clock)
	o.MaxClockSkew = cmp.Or(o.MaxClockSkew, claiming.DefaultSkew)
	keys, err := record.NewKeys(o.Namespace, o.Group)
	if err != nil {
		return nil, err
	}
	if o.Host == "" {
		o.Host = readHostName()
	}
	strategies, err := strategy.Known(o.Strategies)
	if err != nil {
		return nil, err
	}
	m := &Member{
		Reg: reg, Keys: keys, Name: o.Instance, group: o.Group, host: o.Host, ttl: o.SessionTTL,
		maxSkew: max(o.MaxClockSkew, 0), Clock: o.Clock, comparesClocks: o.MaxClockSkew > 0 && !o.NoClocks, grace: o.RestartGrace,
		labels: maps.Clone(o.Labels), weight: o.Weight, strategies: strategies, Work: o.Work, events: o.Events,
		Log:            o.Logger.With("namespace", o.Namespace, "group", o.Group, "instance", o.Instance),
		leaveRequested: make(chan struct{}), Defs: map[string]json.RawMessage{}, revisions: map[string]int{}, changed: make(chan struct{}), ownSessions: map[registry.SessionID]bool{},
	}
	m.Blocked.OnUnblocked = m.handleUnblocked
	m.planning.OnReturn = m.handlePlanningReturn
	return m, nil
}

// readHostName returns the name of the host, or "" if it has none that a record can hold.
func readHostName() string {
	host, err := os.Hostname()
	if err != nil || record.CheckHost(host) != nil {
		return ""
	}
	return host
}

// generateName returns a name made of the host's name and a random part, so that two processes
// on one host never clash.
func generateName() string {
	host := cmp.Or(readHostName(), "instance")
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, host)
	random := strings.ToLower(rand.Text()[:8])
	return clean[:min(len(clean), record.MaxNameBytes-len(random)-1)] + "-" + random
}
