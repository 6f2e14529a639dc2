package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
)

// Receiver is a receiver of messages about jobs.
type Receiver struct {
	*record.Receiver       // nil if the record cannot be read
	Err              error // why not
	HasSender        bool  // a process sends to it
}

// receiverDownAfter is how long a receiver may accept nothing until that is a finding.
const receiverDownAfter = 2 * time.Minute

// checkReceivers reports receivers that get no messages. The next sender replaces a record that cannot be read.
func (d *diagnosis) checkReceivers() {
	for _, name := range slices.Sorted(maps.Keys(d.Receivers)) {
		r, key := d.Receivers[name], d.Keys.Receiver(name)
		if !r.HasSender {
			d.add(Finding{
				Warning, Undelivered, "", key, fmt.Sprintf("receiver %s has no sender, so it gets no message about jobs", name),
				fmt.Sprintf("start a process that has it in its configuration; if it was removed on purpose: rota notify forget %s", name),
			})
		}
		switch {
		case r.Receiver == nil:
			d.add(Finding{
				Warning, Unreadable, "", key, fmt.Sprintf("the record cannot be read: %v", r.Err),
				"nothing: the next sender replaces it, and reports jobs that are not ok anew",
			})
		case r.DownSince != 0 && d.Now.Time().Sub(r.DownSince.Time()) >= receiverDownAfter:
			d.add(Finding{
				Warning, Undelivered, "", key, fmt.Sprintf("receiver %s: nothing delivered since %v: %s", name, r.DownSince, r.Error),
				fmt.Sprintf("mend the receiver, or its settings; rota notify test %s shows its answer", name),
			})
		}
	}
}
