package view

import "time"

// Next are the next fires of a schedule.
type Next struct {
	Version  int         `json:"version"`
	At       time.Time   `json:"at"`
	Job      string      `json:"job,omitempty"`
	Schedule string      `json:"schedule"`
	Fires    []time.Time `json:"fires"`
	Note     string      `json:"note,omitempty"`
}

// Screen returns the fires in the zone of the schedule, in UTC, and their distance.
func (v Next) Screen(t Times) Screen {
	s := Screen{{Title: v.Schedule}}
	if len(v.Fires) > 0 {
		s[0].Table.Columns = columns("FIRE", "UTC", "WHEN")
		for _, at := range v.Fires {
			s[0].Table.Rows = append(s[0].Table.Rows, []string{
				at.Format("Mon 2006-01-02 15:04:05 MST"), at.UTC().Format("2006-01-02T15:04:05Z"), Times{Now: t.Now, Mode: "relative"}.At(at),
			})
		}
	} else {
		s[0].Lines = []string{"no fires"}
	}
	if v.Note != "" {
		s = append(s, Section{Lines: []string{v.Note}})
	}
	return s
}

// Names returns the instants.
func (v Next) Names() []string {
	return namesOf(v.Fires, func(at *time.Time) string { return at.Format(time.RFC3339Nano) })
}

// Items returns the instants.
func (v Next) Items() []any { return itemsOf(v.Fires) }
