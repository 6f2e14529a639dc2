package view

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Policy is the part of a job's definition that decides about its runs. It has no parameters, which may be
// secret. Fields and values are those of the stored definition.
type Policy struct {
	Description   string            `json:"description,omitempty"`
	Strategy      string            `json:"strategy,omitempty"`
	Timeout       string            `json:"timeout,omitempty"`
	OnCrash       string            `json:"on_crash,omitempty"`
	OnMisfire     string            `json:"on_misfire,omitempty"`
	OnOverlap     string            `json:"on_overlap,omitempty"`
	CatchupWindow string            `json:"catchup_window,omitempty"`
	MaxAttempts   int               `json:"max_attempts,omitempty"`
	Retry         *Retry            `json:"retry,omitempty"`
	Tracking      string            `json:"tracking,omitempty"`
	RunOn         map[string]string `json:"run_on,omitempty"`
	Pool          string            `json:"pool,omitempty"`
}

// Retry is the retry policy of a job.
type Retry struct {
	Max         int    `json:"max"`
	Initial     string `json:"initial"`
	MaxInterval string `json:"max_interval"`
}

// policyOf returns the policy in a definition. Fields that this version does not know are left out.
func policyOf(definition json.RawMessage) (p Policy) {
	_ = json.Unmarshal(definition, &p) // a field of another type stays empty
	return p
}

// describe returns the policy in one line.
func (p *Policy) describe() string {
	var parts []string
	add := func(format, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add("misfire: %s", p.OnMisfire)
	add("within %s", p.CatchupWindow)
	if p.OnCrash != "" {
		crash := "crash: " + p.OnCrash
		if p.MaxAttempts > 1 {
			crash += fmt.Sprintf(", %d attempts", p.MaxAttempts)
		}
		parts = append(parts, crash)
	}
	if p.Retry != nil {
		parts = append(parts, p.Retry.describe())
	}
	add("overlap: %s", p.OnOverlap)
	add("time-out %s", p.Timeout)
	add("tracks %s", p.Tracking)
	add("strategy %s", p.Strategy)
	add("run on %s", describeLabels(p.RunOn))
	add("pool %s", p.Pool)
	return strings.Join(parts, " | ")
}

func (r *Retry) describe() string {
	many := fmt.Sprint(r.Max)
	if r.Max < 0 {
		many = "without end"
	}
	return fmt.Sprintf("retry %s, %s..%s", many, r.Initial, r.MaxInterval)
}
