package past

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/internal/view"
)

// Bounds of the logs on the page of a run. The bounds of a history are lower unless somebody has raised them.
const (
	// LogsOnPage is how many logs it shows: those of the last attempts.
	LogsOnPage = 5
	// LogOfRun is how many bytes of a log it shows: half of them from the begin, half from the end.
	LogOfRun = 128 << 10

	logPieces = 256 // that a query reads
	lineCost  = 32  // of a line beside its text
)

// RunLog is the log of an attempt.
type RunLog struct {
	Run, Instance string
	Fence         uint64
	Attempt       int
	Trigger       uint64
	// Lines has a line of the kind history.LogMissing for each gap.
	Lines []view.LogLine
	Ended bool

	dropped    bool // it is not shown
	size       int  // of Lines
	tail       []view.LogLine
	tailSize   int
	leftOut    int // lines between Lines and tail
	isTailOnly bool
}

// ReadLogs returns the logs of the attempts of a shard for a fire, the first attempt first, and how many logs of earlier attempts are left
// out. Trigger zero selects those of operators' retries too.
func ReadLogs(ctx context.Context, r history.Reader, job string, fire time.Time, trigger uint64, shard int) (logs []*RunLog, left int, err error) {
	q := history.LogQuery{Job: job, Fire: fire, Trigger: trigger, Shards: []int{shard}, Limit: logPieces}
	err = look.NewLogReader().Scan(ctx, r, q, func(lines []view.LogLine) bool {
		of := findLog(logs, &lines[0])
		if of == nil {
			of = &RunLog{Run: lines[0].Run, Instance: lines[0].Instance, Fence: lines[0].Fence, Attempt: lines[0].Attempt, Trigger: lines[0].Trigger}
			if logs = append(logs, of); len(logs)-left > LogsOnPage {
				logs[left].dropped, logs[left].Lines, logs[left].tail = true, nil, nil
				left++
			}
		}
		for i := range lines {
			of.add(lines[i])
		}
		return true
	})
	for _, l := range logs {
		l.join()
	}
	return logs[left:], left, err
}

// lastLines is how long after its last line a log without an end may get more. A run that crashed has no end in its log.
const lastLines = time.Minute

// MayGrow reports whether lines may follow soon.
func (l *RunLog) MayGrow(now time.Time) bool {
	return !l.Ended && len(l.Lines) > 0 && now.Sub(l.Lines[len(l.Lines)-1].At) < lastLines
}

// findLog returns the log that a line is of, nil if there is none yet.
func findLog(logs []*RunLog, line *view.LogLine) *RunLog {
	for _, l := range logs {
		if l.Run == line.Run && l.Instance == line.Instance && l.Fence == line.Fence {
			return l
		}
	}
	return nil
}

// add adds a line at the end. Beyond the bound, the first line of the second half is left out for it.
func (l *RunLog) add(line view.LogLine) {
	if l.dropped {
		return
	}
	l.Ended = l.Ended || line.Kind == history.LogEnd
	cost := len(line.Text) + lineCost
	if !l.isTailOnly && l.size+cost <= LogOfRun/2 {
		l.Lines, l.size = append(l.Lines, line), l.size+cost
		return
	}
	l.isTailOnly = true
	l.tail, l.tailSize = append(l.tail, line), l.tailSize+cost
	for l.tailSize > LogOfRun/2 && len(l.tail) > 1 {
		l.tailSize -= len(l.tail[0].Text) + lineCost
		l.tail = l.tail[1:]
		l.leftOut++
	}
}

// join joins the begin and the end, with a line for those that are left out between them.
func (l *RunLog) join() {
	if l.leftOut > 0 {
		gap := l.tail[0]
		gap.LogLine = history.LogLine{Kind: history.LogMissing, Text: fmt.Sprintf("%d lines are not on this page; rota logs prints them", l.leftOut)}
		l.Lines = append(l.Lines, gap)
	}
	l.Lines, l.tail = append(l.Lines, l.tail...), nil
}
