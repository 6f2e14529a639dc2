package simulate

import (
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry/memory"
)

// pid matches the only value in the records that the simulation does not decide.
var pid = regexp.MustCompile(`"pid":\d+`)

// writeTranscript writes each commit with its ids and values, and each call with its times. Two simulations ran the
// same way if their transcripts are equal.
func writeTranscript(w io.Writer, log []memory.Commit, said []judge.Event) {
	for i := range log {
		c := &log[i]
		fmt.Fprintf(w, "%v %s %s txn %s opened %q ended %q gone %q if %v", c.Rev, formatTime(c.At), c.Client, c.Txn, c.Opened, c.Ended, c.Gone, c.If)
		for _, op := range c.Then {
			fmt.Fprintf(w, " then %v %s", op, pid.ReplaceAll(op.Value, []byte(`"pid":0`)))
		}
		fmt.Fprintf(w, " error %v\n", c.Err)
	}
	for _, e := range said {
		c := e.Call
		fmt.Fprintf(w, "%s %s/%d of %d fire %s trigger %d attempt %d fence %d by %s of %s, end %s, canceled %s\n", formatTime(c.Start),
			c.Job, c.Shard, c.Shards, formatTime(c.Fire), c.Trigger, c.Attempt, c.Fence, c.Client, c.Instance, formatTime(e.End), formatTime(e.Canceled))
	}
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("01-02T15:04:05.999999999")
}
