package member

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// DefaultGroup is the group of those who name none.
const DefaultGroup = "default"

// Options are options of NewMember.
type Options struct {
	Namespace  string
	Group      string        // "" = "default"
	Instance   string        // unique among the live; "" = host name and a random part
	SessionTTL time.Duration // asked for; 0 = registry.DefaultSessionTTL
	// MaxClockSkew is how far clocks of the fleet may be apart; 0 = 5 s, < 0 = none, and nobody
	// looks. A member whose clock is further from the median of the fleet claims nothing. As
	// two cannot tell which of them is wrong, it takes three. Shards whose fires a wrong clock
	// claimed far ahead wait until then; the owner logs that, and Status.Problem shows it.
	MaxClockSkew time.Duration
	// RestartGrace is how long this member's shards wait for an instance of its name to come
	// back, once it has left or died, before they move. It needs Instance. A leader counts it
	// from when it sees that the member is gone; one that comes to lead meanwhile counts anew.
	// 0 = they move at once.
	RestartGrace time.Duration
	Host         string // where this process runs, for operators; "" = the host's name
	// Labels say what kind of instance this is, for as long as it lives: to jobs that run on
	// some only, and to strategies. There may be 64, with keys of 1 to 100 bytes and values of
	// up to 200, of UTF-8 without control characters.
	Labels map[string]string
	// Weight is how many times the shards of a member with weight 1 this one is to have, up to
	// MaxWeight. The strategy "sticky" heeds it, and gives each member its share by weight of
	// every job and of all of them together to within one shard; the others that come with this
	// package do not. It is fixed for as long as the member lives. 0 = 1
	Weight int
	// Strategies are strategies of your own, by the name that jobs ask for. Every process that may
	// come to lead needs them. The built-in names are "sticky", "average", "odevity", "rotate" and
	// "single".
	Strategies map[string]strategy.Func
	// NoClocks means that the work goes by no clock, so clocks are not compared.
	NoClocks bool
	Work     Work
	Logger   *slog.Logger // nil = slog.Default()
	// Clock tells the time of day, for tests of clocks that differ. What has to last for some
	// time goes by package time all the same. nil = time.Now
	Clock func() time.Time
}

// ErrNilRegistry is returned at once: a nil registry panics in a goroutine otherwise.
var ErrNilRegistry = errors.New("registry is nil")

// New returns a member of a group. Nothing is sent before Run.
func New(reg registry.Registry, o Options) (*Member, error) {
	if o.Group == "" {
		o.Group = DefaultGroup
	}
	switch {
	case o.RestartGrace < 0 || o.RestartGrace > planning.MaxRestartGrace:
		return nil, fmt.Errorf("restart grace is %v, not between 0 and %v", o.RestartGrace, planning.MaxRestartGrace)
	case o.Weight < 0 || o.Weight > planning.MaxWeight:
		return nil, fmt.Errorf("weight is %d, not between 0 and %d", o.Weight, planning.MaxWeight)
	case o.RestartGrace > 0 && o.Instance == "":
		return nil, errors.New("restart grace without a name of the instance to come back under")
	}
	if o.Instance == "" {
		o.Instance = generateName()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MaxClockSkew == 0 {
		o.MaxClockSkew = 5 * time.Second
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	keys, err := record.NewKeys(o.Namespace, o.Group)
	if err != nil {
		return nil, err
	}
	if reg == nil {
		return nil, ErrNilRegistry
	}
	if err := record.CheckName(o.Instance); err != nil {
		return nil, fmt.Errorf("instance: %w", err)
	}
	if o.Host == "" {
		o.Host = readHostName()
	} else if err := record.CheckHost(o.Host); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	if err := errors.Join(record.CheckLabels(o.Labels, record.MaxLabels)...); err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	strategies, err := strategy.Known(o.Strategies)
	if err != nil {
		return nil, err
	}
	m := &Member{
		Reg: reg, Keys: keys, Name: o.Instance, host: o.Host, ttl: o.SessionTTL,
		maxSkew: max(o.MaxClockSkew, 0), Clock: o.Clock, comparesClocks: o.MaxClockSkew > 0 && !o.NoClocks, grace: o.RestartGrace,
		labels: maps.Clone(o.Labels), weight: o.Weight, strategies: strategies, Work: o.Work,
		Log:            o.Logger.With("namespace", o.Namespace, "group", o.Group, "instance", o.Instance),
		leaveRequested: make(chan struct{}), Defs: map[string]json.RawMessage{}, revisions: map[string]int{}, changed: make(chan struct{}), ownSessions: map[registry.SessionID]bool{},
	}
	m.Blocked.OnUnblocked = m.handleUnblocked
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

// generateName makes a name of the host's and a random part, so that two processes on one
// host never clash.
func generateName() string {
	host := readHostName()
	if host == "" {
		host = "instance"
	}
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, host)
	random := strings.ToLower(rand.Text()[:8])
	return clean[:min(len(clean), record.MaxNameBytes-len(random)-1)] + "-" + random
}
