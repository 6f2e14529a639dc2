package draw

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/web/internal/past"
)

// Links makes addresses relative to the page that has them.
type Links struct {
	// Base leads to the directory of the job: "" on the pages of jobs/JOB/, "jobs/JOB/" on the page of the fleet.
	Base string
	// Query is appended to each address, as "zone=utc". It is escaped already.
	Query string
}

func (l Links) with(address, query string) string {
	switch {
	case query != "" && l.Query != "":
		query += "&" + l.Query
	case query == "":
		query = l.Query
	}
	if query != "" {
		address += "?" + query
	}
	return address
}

// FireName returns the segment that names a fire in an address.
func FireName(fire time.Time, trigger uint64) string {
	if trigger != 0 {
		return "~" + strconv.FormatUint(trigger, 10)
	}
	return fire.UTC().Format(time.RFC3339Nano)
}

// ParseFireName parses a segment of FireName. One of the results is zero.
func ParseFireName(s string) (fire time.Time, trigger uint64, err error) {
	if len(s) > 1 && s[0] == '~' {
		if trigger, err = strconv.ParseUint(s[1:], 10, 64); err != nil || trigger == 0 {
			return time.Time{}, 0, fmt.Errorf("%.40q is no number of a trigger", s[1:])
		}
		return time.Time{}, trigger, nil
	}
	if fire, err = time.Parse(time.RFC3339Nano, s); err != nil || fire.IsZero() {
		return time.Time{}, 0, fmt.Errorf("%.40q is no instant as 2026-01-31T03:00:00Z", s)
	}
	return fire.UTC(), 0, nil
}

// Fire returns the address of a fire.
func (l Links) Fire(fire time.Time, trigger uint64) string {
	return l.with(l.Base+"fires/"+FireName(fire, trigger), "")
}

// FirePage returns the address of a page of a fire's shards, from the number of the first one.
func (l Links) FirePage(fire time.Time, trigger uint64, from int) string {
	query := ""
	if from > 0 {
		query = "from=" + strconv.Itoa(from)
	}
	return l.with(l.Base+"fires/"+FireName(fire, trigger), query)
}

// Run returns the address of the attempts of a shard.
func (l Links) Run(fire time.Time, trigger uint64, shard int) string {
	return l.with(l.Base+"fires/"+FireName(fire, trigger)+"/shards/"+strconv.Itoa(shard), "")
}

// Grid returns the address of the grid of a range, that of all shards if it ends below its first. Until is the instant of the last
// fire, zero for the latest.
func (l Links) Grid(of past.Range, until time.Time) string {
	q := url.Values{}
	if of.Last >= of.First {
		q.Set("shards", fmt.Sprintf("%d-%d", of.First, of.Last))
	}
	if !until.IsZero() {
		q.Set("until", until.UTC().Format(time.RFC3339Nano))
	}
	return l.with(l.Base+"grid", q.Encode())
}

// ParseRange parses the shards of an address of Grid: "7" or "0-156". The empty text is all shards.
func ParseRange(s string) (past.Range, error) {
	if s == "" {
		return past.Range{First: 0, Last: -1}, nil
	}
	var r past.Range
	n, err := fmt.Sscanf(s, "%d-%d", &r.First, &r.Last)
	if n == 1 {
		r.Last, err = r.First, nil
	}
	if err != nil || r.First < 0 || r.Last < r.First || s != r.String() && s != fmt.Sprintf("%d-%d", r.First, r.Last) {
		return past.Range{}, fmt.Errorf("%.40q is no range of shards as 0-156", s)
	}
	return r, nil
}

// exact returns an instant with its date and zone.
func exact(t view.Times, at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.In(zoneOf(t)).Format("2006-01-02 15:04:05.999 MST")
}

// clock returns the time of day of an instant, with the date if it is not that of the day before in a list.
func clock(t view.Times, at, before time.Time) string {
	at, before = at.In(zoneOf(t)), before.In(zoneOf(t))
	layout := "15:04"
	if at.Second() != 0 {
		layout = "15:04:05"
	}
	if at.Format(time.DateOnly) != before.Format(time.DateOnly) {
		layout = "Jan 2 " + layout
	}
	return at.Format(layout)
}

func zoneOf(t view.Times) *time.Location {
	if t.Zone == nil {
		return time.UTC
	}
	return t.Zone
}

// nameOf names a fire: its instant, and the number of its trigger.
func nameOf(t view.Times, fire time.Time, trigger uint64) string {
	name := exact(t, fire)
	if trigger != 0 {
		name = fmt.Sprintf("trigger #%d, %s", trigger, name)
	}
	return name
}

// escape escapes a text as a segment of a path, also for a query.
func escape(s string) string { return strings.ReplaceAll(url.PathEscape(s), "&", "%26") }
