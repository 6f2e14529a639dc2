package record

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxRunKeyBytes bounds executor.Run.Key. Many servers accept idempotency keys of at most so many bytes.
const MaxRunKeyBytes = 255

// maxRunKeySegment bounds the segments of namespace, group and job in the key of a shard, so that keys keep within MaxRunKeyBytes.
const maxRunKeySegment = 60

// JobID identifies a job over all fleets.
type JobID struct {
	Namespace, Group, Job string
	Created               string // of a defined job: identifies the creation of its name
}

// AppendShardKey appends executor.Run.ShardKey. No two shards have the same key: segments contain no slash.
func (id JobID) AppendShardKey(b []byte, shard int) []byte {
	return strconv.AppendInt(id.appendTo(b), int64(shard), 10)
}

// appendTo appends NAMESPACE/GROUP/JOB/ to b, or NAMESPACE/GROUP/JOB@CREATED/ for a defined job. Segments contain no at sign.
func (id JobID) appendTo(b []byte) []byte {
	b = append(appendSegment(b, id.Namespace, maxRunKeySegment), '/')
	b = append(appendSegment(b, id.Group, maxRunKeySegment), '/')
	if id.Created == "" {
		return append(appendSegment(b, id.Job, maxRunKeySegment), '/')
	}
	b = append(appendSegment(b, id.Job, maxRunKeySegment-1-len(id.Created)), '@')
	return append(append(b, id.Created...), '/')
}

// CheckCreated checks the token of a creation. It is part of keys of work without being escaped.
func CheckCreated(token string) error {
	if token == "" || len(token) > maxCreatedBytes {
		return fmt.Errorf("has %d bytes, not from 1 to %d", len(token), maxCreatedBytes)
	}
	if i := strings.IndexFunc(token, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }); i >= 0 {
		return fmt.Errorf("%q has other characters than lower-case letters and digits", token)
	}
	return nil
}

// workName returns the last segment of the key of a scheduled fire's run.
func (i Instant) workName() string { return i.Time().Format(time.RFC3339Nano) }

// NewToken returns 64 random bits as 13 lower-case letters and digits. A token in a trigger's name keeps the name from
// coming again, whatever becomes of the counter of triggers.
func NewToken() string {
	var bits [8]byte
	_, _ = rand.Read(bits[:]) // never fails
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(bits[:]))
}

// RunOf names the trigger of a run, and the work that the run does. It is zero for a scheduled fire.
type RunOf struct {
	Trigger string // Trigger.Name
	Work    string // Trigger.WorkName
}

// RunOf returns the names for runs with that reference, while its trigger is in the plan.
func (p *Plan) RunOf(r Ref) RunOf {
	if t := p.Trigger(r.Trigger); t != nil {
		return RunOf{t.Name(), t.WorkName()}
	}
	return RunOf{}
}

// RunNames makes the IDs and keys of the runs of one attempt, which differ in the shard.
type RunNames struct {
	before, after string // of the number of the shard in the ID
	work          int    // the length of the key's part of after
}

// NewRunNames returns the names of the runs of an attempt at a fire or trigger.
func NewRunNames(id JobID, fire time.Time, of RunOf, attempt int) RunNames {
	var room [256]byte
	before := string(id.appendTo(room[:0]))
	b := append(room[:0], '/')
	if of.Work != "" {
		b = append(b, of.Work...)
	} else {
		b = fire.UTC().AppendFormat(b, time.RFC3339Nano)
	}
	work := len(b)
	if !strings.HasSuffix(of.Work, of.Trigger) {
		b = append(append(b, '/'), of.Trigger...)
	}
	b = append(b, '/')
	b = strconv.AppendInt(b, int64(attempt), 10)
	return RunNames{before, string(b), work}
}

// Of returns executor.Run.ID and executor.Run.Key of the run of a shard.
func (n *RunNames) Of(shard int) (id, key string) {
	var room [512]byte
	b := append(room[:0], n.before...)
	b = strconv.AppendInt(b, int64(shard), 10)
	end := len(b) + n.work
	id = string(append(b, n.after...))
	return id, id[:end]
}

// Name returns the name of t, which is unique for all time: #NUMBER-TOKEN. Triggers that older versions stored have no
// token, and a name that is unique until the job is forgotten.
func (t *Trigger) Name() string {
	name := "#" + strconv.FormatUint(t.Number, 10)
	if t.Token != "" {
		name += "-" + t.Token
	}
	return name
}

// WorkName returns the last segment of the keys of t's runs, which names the work that they do.
func (t *Trigger) WorkName() string {
	switch {
	case t.Again:
		return t.Fire.workName() + t.Name()
	case t.Work != "":
		return t.Work
	case t.IsPast():
		return t.Fire.workName()
	}
	return t.Name()
}

// Trigger returns the trigger of that number in the plan, nil if there is none. The plan may be nil.
func (p *Plan) Trigger(number uint64) *Trigger {
	if p == nil || number == 0 {
		return nil
	}
	if i := slices.IndexFunc(p.Triggers, func(t Trigger) bool { return t.Number == number }); i >= 0 {
		return &p.Triggers[i]
	}
	return nil
}
