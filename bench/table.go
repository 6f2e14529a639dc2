package main

import (
	"fmt"
	"strings"
	"time"
)

// tableOf formats rows as a Markdown table.
func tableOf(rows []row) string {
	var b strings.Builder
	b.WriteString("| what | rate | median | ours | median | p99 | a second | beside it | median | p99 | a second | budget |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		rate, ratio := "", ""
		if r.theirs.run != nil {
			ratio = fmt.Sprintf("%.1f", r.ratio)
		}
		if r.theirs.run != nil && !r.paced {
			rate = fmt.Sprintf("%.1f", r.rate)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n",
			r.name, rate, ratio, r.formatSide(r.ours, r.us), r.formatSide(r.theirs, r.them), r.budget)
	}
	return b.String()
}

func (r *row) formatSide(sub subject, s summary) string {
	if sub.run == nil {
		return " | | | "
	}
	rate := ""
	if !r.paced {
		rate = fmt.Sprintf("%.0f", s.rate)
	}
	return fmt.Sprintf("%s | %s | %s | %s", sub.name, formatMillis(s.median), formatMillis(s.tail), rate)
}

func formatMillis(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1e3) }
