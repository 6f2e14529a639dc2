package record

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Buckets is the number of directories over which defined jobs are spread: a ZooKeeper client lists a whole directory
// after each change in it, and cannot list one of a hundred thousand names.
const Buckets = 256

// bucketOf returns the bucket of a job, from 0 to Buckets-1. Segment is the Segment of its name.
func bucketOf(segment string) int { return int(sha256.Sum256([]byte(segment))[0]) }

// bucketName returns the name of the directory of a bucket.
func bucketName(bucket int) string {
	return strconv.FormatInt(0x100|int64(bucket), 16)[1:] // two digits
}

// Defined is the record of a job that was defined as data: what operators want. A leader stores its definition as that of a
// job while the job is awake, and deletes the job's other records when it puts the job to rest.
//
// A deleted job stays as a Defined without a Definition until its other records are deleted, and TombstoneTime after that.
type Defined struct {
	Job        string          `json:"job"`
	Created    string          `json:"created,omitempty"` // identifies this creation of the name; empty if it was deleted
	Revision   int             `json:"revision"`          // from 1, one more at each change of Definition
	Definition json.RawMessage `json:"definition,omitempty"`
	At         Instant         `json:"at"`            // when this creation was defined, by the clock of its author
	Next       Instant         `json:"next,omitzero"` // the first fire that may be owed while the job rests; zero: none
	By         Act             `json:"by"`            // the act that wrote the definition, or deleted it

	// Changed is when the definition was changed last while the job rested: earlier fires are not those of the definition.
	Changed Instant `json:"changed,omitzero"`
	// Earlier are definitions that were changed before a leader had woken the job for fires that were owed by them, oldest first.
	Earlier []EarlierDefinition `json:"earlier,omitempty"`

	// DeleteAfter is how long the job stays after its last run, once no fire is left, unless that failed. Zero means
	// DefaultDeleteAfter; negative: for ever.
	DeleteAfter Duration `json:"delete_after,omitzero"`
	Rest        *Rest    `json:"rest,omitempty"` // what the latest rest of this creation began with; nil: it has not rested

	// Gone is when the last other record of a deleted job was deleted. Zero: the leader has yet to delete them.
	Gone Instant `json:"gone,omitzero"`

	job   Job
	extra Fields
}

// TombstoneTime is how long the record of a deleted or finished job stays at least. A write of a definition may reach the store
// late, after its author has repeated it: without the record it would define the job again. No connection holds a request as long.
const TombstoneTime = 5 * time.Minute

// EarlierDefinition is the definition of the fires before an instant, and after that of the one before it.
type EarlierDefinition struct {
	Until      Instant         `json:"until"`
	Definition json.RawMessage `json:"definition"`
}

// MaxEarlier bounds Defined.Earlier: a plan has no room for more epochs.
const MaxEarlier = 6

// Rest is what the records of a job said when it was put to rest.
type Rest struct {
	Number   int      `json:"number"`            // counts the rests of the creation, from 1
	Epoch    int      `json:"epoch"`             // the number of the last one
	From     Instant  `json:"from"`              // fires before it have been claimed or skipped
	Trigger  uint64   `json:"trigger,omitempty"` // the last trigger that was claimed
	Counts   Counts   `json:"counts,omitzero"`
	Ended    Instant  `json:"ended,omitzero"` // when the last run ended
	Failures Failures `json:"failures,omitempty"`
	Failing  bool     `json:"failing,omitempty"` // the last run of a shard has failed for good
	// Finished is when the job was found to have no further fire, zero if it has one.
	Finished Instant `json:"finished,omitzero"`
}

// Parsed returns the part of the definition that planning needs.
func (d *Defined) Parsed() Job { return d.job }

// IsDeleted reports whether operators have deleted the job.
func (d *Defined) IsDeleted() bool { return d.Created == "" }

// Life names the time between two rests of a creation of the job. Claims of one life say nothing about another.
func (d *Defined) Life() string {
	n := 0
	if d.Rest != nil {
		n = d.Rest.Number
	}
	return d.Created + "." + strconv.Itoa(n)
}

// HasLife reports whether a life is of this creation.
func (d *Defined) HasLife(life string) bool {
	created, _, _ := strings.Cut(life, ".")
	return created == d.Created
}

// IsGone reports whether the record is all that is left of a deleted job.
func (d *Defined) IsGone() bool { return d.IsDeleted() && d.Gone != 0 }

// DeleteAt returns when the record of a finished or deleted job is to be deleted, zero if it is not.
func (d *Defined) DeleteAt() Instant {
	if d.IsGone() {
		return d.Gone.Add(TombstoneTime)
	}
	r := d.Rest
	if r == nil || r.Finished == 0 || r.Failing || d.DeleteAfter < 0 {
		return 0
	}
	at := cmp.Or(r.Ended, r.Finished).Add(time.Duration(cmp.Or(d.DeleteAfter, DefaultDeleteAfter)))
	return max(at, r.Finished.Add(TombstoneTime))
}

// Tombstone returns the record that is left of the job once its other records are deleted.
func (d *Defined) Tombstone(now Instant, by Act) *Defined {
	return &Defined{Job: d.Job, Revision: d.Revision, At: d.At, By: by, Gone: now}
}

// DefaultDeleteAfter is how long a finished job stays whose definition does not say it.
const DefaultDeleteAfter = Duration(time.Hour)

// maxCreatedBytes bounds the token of a creation, which is part of keys of work.
const maxCreatedBytes = 16

// DecodeDefined decodes and checks the record of a defined job.
func DecodeDefined(b []byte) (*Defined, error) {
	d, extra, err := decodeKeeping[Defined](b)
	if err != nil {
		return nil, err
	}
	d.extra = extra
	switch {
	case d.IsDeleted():
		return d, nil
	case CheckCreated(d.Created) != nil:
		return nil, fmt.Errorf("created: %w", CheckCreated(d.Created))
	case d.Revision < 1:
		return nil, fmt.Errorf("revision is %d, below 1", d.Revision)
	}
	if d.job, err = ParseJob(d.Definition); err != nil {
		return nil, fmt.Errorf("definition: %w", err)
	}
	if len(d.Earlier) > MaxEarlier {
		return nil, fmt.Errorf("earlier: %d definitions, at most %d", len(d.Earlier), MaxEarlier)
	}
	return d, d.checkDefinition()
}

// checkDefinition checks that the definition is that of this record.
func (d *Defined) checkDefinition() error {
	switch j := d.job; {
	case j.Name != d.Job:
		return fmt.Errorf("definition: it is of job %q, not %q", j.Name, d.Job)
	case j.Kind == "":
		return errors.New("definition: kind is missing")
	case j.Created != d.Created:
		return fmt.Errorf("definition: created is %q, not %q", j.Created, d.Created)
	case j.Revision != d.Revision:
		return fmt.Errorf("definition: revision is %d, not %d", j.Revision, d.Revision)
	}
	if r := d.Rest; r != nil && (r.Number < 1 || r.Epoch < 1) {
		return fmt.Errorf("rest: number %d, epoch %d: below 1", r.Number, r.Epoch)
	}
	return nil
}

// MarshalJSON encodes the record with its unknown fields.
func (d *Defined) MarshalJSON() ([]byte, error) {
	type plain Defined
	return marshalKeeping((*plain)(d), d.extra)
}

// Kind is the record of a kind of jobs: what a definition of the kind has by default.
type Kind struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Revision    int             `json:"revision,omitempty"`
	Defaults    json.RawMessage `json:"defaults,omitempty"` // fields of definitions
	MaxJobs     int             `json:"max_jobs,omitempty"` // how many jobs of the kind may be defined; 0: DefaultMaxJobs

	extra Fields
}

// DefaultMaxJobs bounds the defined jobs of a group, and of a kind that has no bound of its own.
const DefaultMaxJobs = 100_000

// DecodeKind decodes and checks the record of a kind.
func DecodeKind(b []byte) (*Kind, error) {
	k, extra, err := decodeKeeping[Kind](b)
	if err != nil {
		return nil, err
	}
	k.extra = extra
	if err := CheckKindName(k.Name); err != nil {
		return nil, fmt.Errorf("name: %w", err)
	}
	return k, nil
}

// MarshalJSON encodes the record with its unknown fields.
func (k *Kind) MarshalJSON() ([]byte, error) {
	type plain Kind
	return marshalKeeping((*plain)(k), k.extra)
}

// CountsName is the name of the record KindCounts among those of kinds.
const CountsName = "-counts"

// KindCounts is how many jobs are defined, as a leader counted them. It is there once a job has been defined.
type KindCounts struct {
	At     Instant        `json:"at,omitzero"`
	ByKind map[string]int `json:"by_kind,omitempty"`
}

// Total returns the number of all defined jobs.
func (c *KindCounts) Total() (n int) {
	for _, of := range c.ByKind {
		n += of
	}
	return n
}

// EqualKinds reports whether c and other count the same.
func (c *KindCounts) EqualKinds(other *KindCounts) bool { return maps.Equal(c.ByKind, other.ByKind) }

// DecodeKindCounts decodes the numbers of defined jobs.
func DecodeKindCounts(b []byte) (KindCounts, error) { return Decode[KindCounts](b) }

// CheckKindName checks the name of a kind. It is part of keys without being escaped.
func CheckKindName(name string) error {
	if strings.HasPrefix(name, "-") {
		return fmt.Errorf("%q begins with a dash", name)
	}
	return CheckName(name)
}
