package main

import (
	"fmt"
	"strings"
	"time"
)

// tableOf returns rows in Markdown.
func tableOf(rows []row) string {
	var b strings.Builder
	b.WriteString("| what | rate, ratio | median, ratio | ours | median | p99 | a second | beside | median | p99 | a second | budget |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		rate, ratio := "", ""
		if r.theirs.run != nil {
			rate, ratio = fmt.Sprintf("%.1f", r.rate), fmt.Sprintf("%.1f", r.ratio)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n",
			r.name, rate, ratio, side(r.ours, r.us), side(r.theirs, r.them), r.budget)
	}
	return b.String()
}

func side(sub subject, s summary) string {
	if sub.run == nil {
		return " | | | "
	}
	return fmt.Sprintf("%s | %s | %s | %.0f", sub.name, ms(s.median), ms(s.tail), s.rate)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1e3) }
