package fleet

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Lost returns the number of violations of promises 2 and 3: lost fires and lost runs in flight.
func (o *Outcome) Lost() int { return o.Report.Broken[2] + o.Report.Broken[3] }

// Doubled returns the number of violations of promise 1: doubled claims and runs.
func (o *Outcome) Doubled() int { return o.Report.Broken[1] }

// Violated returns the number of all violations.
func (o *Outcome) Violated() (n int) {
	for _, of := range o.Report.Broken {
		n += of
	}
	return n
}

// Quantile returns the time that a share q of times does not exceed, or 0 without times.
func Quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(times))))
	return slices.Sorted(slices.Values(times))[max(rank, 1)-1]
}

// WriteTable writes the outcomes of trials. Given up are runs without a further attempt, and skipped are fires that
// the misfire policy skips; the fleet counts both. Times are written as their number, p50, p99 and maximum.
func WriteTable(w io.Writer, outcomes []Outcome) error {
	counts := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(counts, "trial\trounds\ttook\tclaims\tre-runs\tgiven up\tskipped\tended fires\tfollowed\tmoves\tfailovers\tdefinitions\tlost\tdoubled\tviolations\t")
	for _, o := range outcomes {
		r := o.Report
		fmt.Fprintf(counts, "%s\t%d\t%v\t", o.Trial, o.rounds(), o.Took.Round(time.Second))
		for _, n := range []int{
			r.Claims, r.Reruns, r.Lost, r.Skipped, r.EndedFires, r.Releases, r.Moves, r.Failovers, r.Epochs, o.Lost(), o.Doubled(), o.Violated(),
		} {
			fmt.Fprintf(counts, "%d\t", n)
		}
		fmt.Fprintln(counts)
	}
	if err := counts.Flush(); err != nil {
		return err
	}
	times := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(times, "\ntrial\tkill to session end\tsession end to claimed elsewhere\tleave to running elsewhere\tjoin to running\tanswers of the store\t")
	for _, o := range outcomes {
		fmt.Fprintf(times, "%s\t%s\t%s\t%s\t%s\t%s\t\n", o.Trial,
			quantiles(o.TimesToExpire), quantiles(o.TimesToRerun), quantiles(o.TimesToLeave), quantiles(o.TimesToJoin), quantiles(o.Answers))
	}
	if err := times.Flush(); err != nil {
		return err
	}
	for i := range outcomes {
		if err := writeEdits(w, &outcomes[i]); err != nil {
			return err
		}
	}
	for _, o := range outcomes {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(o.Report.Faults)) {
			kinds = append(kinds, fmt.Sprintf("%s %d", kind, o.Report.Faults[kind]))
		}
		if _, err := fmt.Fprintf(w, "%s: seed %d; rounds: %s; %d bytes of requests reached the store after their session ended\n",
			o.Trial, o.Trial.Seed, strings.Join(kinds, ", "), o.LateBytes); err != nil {
			return err
		}
		if o.Trial.Pool > 0 {
			if _, err := fmt.Fprintf(w, "%s: a pool of %d: %s\n", o.Trial, o.Trial.Pool, o.Report.PoolText()); err != nil {
				return err
			}
		}
		if r := o.Report; o.Trial.Defines > 0 {
			if _, err := fmt.Fprintf(w, "%s: %d names defined anew %d times, changed %d times, woken %d times and put to rest %d times; %d calls of Delete returned\n",
				o.Trial, o.Trial.Defines, r.Defined, r.Redefined, r.Wakes, r.Rests, o.Deletes); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *Outcome) rounds() (n int) {
	for _, of := range o.Report.Faults {
		n += of
	}
	return n
}

// quantiles is described in WriteTable.
func quantiles(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", len(times))
	for _, q := range []float64{0.5, 0.99, 1} {
		fmt.Fprintf(&b, " %v", Quantile(times, q).Round(time.Millisecond))
	}
	return b.String()
}
