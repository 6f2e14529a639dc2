package importing

import "time"

// document is a set of jobs to write, with comments for their reader.
type document struct {
	intro     []string // paragraphs of the comment at the top
	notes     []string // that concern no single job
	namespace string   // empty: the output names none
	timezone  string   // of jobs without one; empty: UTC
	jobs      []job
}

// job is a job to write. The zero value of each field but name is rota's default.
type job struct {
	name        string
	description string
	schedule    importedSchedule
	shards      int
	shardParams map[int]string
	param       string
	strategy    string
	maxRunning  int
	startPaused bool
	// skipMissed, skipOverlapping, countAsFailed and trackClaims are the policies of executor.Job
	// with these names.
	skipMissed, skipOverlapping bool
	countAsFailed, trackClaims  bool
	work                        work
	notes                       []string
}

// importedSchedule determines the fires of a job. Without a text, the job has none.
type importedSchedule struct {
	text     string
	dialect  dialect
	timezone string // empty: document.timezone
	spread   time.Duration
	// dropped reports whether the text is to be a comment, as rota cannot keep its meaning. A note
	// states why.
	dropped bool
}

// fires reports whether the job is to have fires.
func (s importedSchedule) fires() bool { return s.text != "" && !s.dropped }

type dialect int

const (
	cronDialect dialect = iota
	quartzDialect
)

// work is the work of a job: exactly one of script, argv, request and class is set.
type work struct {
	script      string
	interpreter string // of script, by -c; empty: /bin/sh
	dir         string
	env         map[string]string
	argv        []string // templates, but for the program
	request     *request
	class       class
}

// request is an HTTP request. URL, header values and body are templates.
type request struct {
	method, url, body string
	header            map[string]string
	timeout           time.Duration
}

// class is the work of a job that is Java code.
type class struct {
	name      string
	dataflow  bool
	streaming bool // if dataflow
}

func (j *job) note(text string) { j.notes = append(j.notes, text) }

// countNotes returns the number of notes of a document and its jobs.
func (d *document) countNotes() int {
	n := len(d.notes)
	for i := range d.jobs {
		n += len(d.jobs[i].notes)
	}
	return n
}
