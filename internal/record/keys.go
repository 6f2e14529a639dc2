package record

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/internal/jobname"
	"github.com/rota-dev/rota/registry"
)

// Keys returns the keys of the records of one group.
type Keys struct {
	ns, group registry.Key
}

// NewKeys returns the Keys of a group in a namespace, or an error that names the rule that the
// namespace or the group breaks.
func NewKeys(namespace, group string) (Keys, error) {
	if err := registry.CheckDir(registry.Key(namespace)); err != nil {
		return Keys{}, fmt.Errorf("namespace: %w", err)
	}
	if namespace == "" {
		return Keys{}, fmt.Errorf("namespace: %w: it is empty", registry.ErrInvalidKey)
	}
	if err := CheckName(group); err != nil {
		return Keys{}, fmt.Errorf("group: %w", err)
	}
	k := Keys{ns: registry.Key(namespace)}
	k.group = k.ns.Join("groups", group)
	// The longest key is claims/<incarnation>/<job>.
	if err := registry.CheckKey(k.Claims(strings.Repeat("x", 128), strings.Repeat("x", 128))); err != nil {
		return Keys{}, fmt.Errorf("namespace %q and group %q: %w: together too long", namespace, group, registry.ErrInvalidKey)
	}
	return k, nil
}

// Names returns the namespace and the group.
func (k Keys) Names() (namespace, group string) { return string(k.ns), k.group.Name() }

// Meta is the record of the namespace, see [Meta].
func (k Keys) Meta() registry.Key { return k.ns.Join("meta") }

// Instances is the directory of live instances, which leaders watch.
func (k Keys) Instances() registry.Key { return k.ns.Join("instances") }

// Instance is the owned key of an instance, which makes its name unique.
func (k Keys) Instance(name string) registry.Key { return k.ns.Join("instances", "~"+name) }

// Election is the directory of the election, which every member watches.
func (k Keys) Election() registry.Key { return k.group.Join("election") }

// Leader is the record of the leader. Its commit number is the term.
func (k Keys) Leader() registry.Key { return k.group.Join("election", "leader") }

// Seat is the seat, which the leader's session owns. Without it, the group has no leader.
func (k Keys) Seat() registry.Key { return k.group.Join("election", "~seat") }

// Members is the directory of member records.
func (k Keys) Members() registry.Key { return k.group.Join("members") }

// Member is the member record of an incarnation.
func (k Keys) Member(incarnation string) registry.Key { return k.group.Join("members", incarnation) }

// Jobs is the directory of definitions.
func (k Keys) Jobs() registry.Key { return k.group.Join("jobs") }

// Job is the definition of a job. Here and below, segment is the Segment of the job's name.
func (k Keys) Job(segment string) registry.Key { return k.group.Join("jobs", segment) }

// Kinds is the directory of kinds of jobs.
func (k Keys) Kinds() registry.Key { return k.group.Join("kinds") }

// Kind is the record of a kind.
func (k Keys) Kind(name string) registry.Key { return k.group.Join("kinds", name) }

// KindCounts is the record of how many jobs are defined.
func (k Keys) KindCounts() registry.Key { return k.group.Join("kinds", CountsName) }

// DefinedIn is the directory of the defined jobs in a bucket, which leaders watch.
func (k Keys) DefinedIn(bucket int) registry.Key { return k.group.Join("defined", bucketName(bucket)) }

// DefinedBucket returns the number of the bucket of a defined job, from 0 to Buckets-1.
func DefinedBucket(segment string) int { return bucketOf(segment) }

// Defined is the record of a defined job.
func (k Keys) Defined(segment string) registry.Key {
	return k.DefinedIn(bucketOf(segment)).Join(segment)
}

// Controls is the directory of control records.
func (k Keys) Controls() registry.Key { return k.group.Join("control") }

// Control is the control record of a job.
func (k Keys) Control(segment string) registry.Key { return k.group.Join("control", segment) }

// GroupControl is the control record of the group.
func (k Keys) GroupControl() registry.Key { return k.group.Join("control", GroupSegment) }

// GroupSegment takes the place of a job's segment in GroupControl. It differs from the segments
// of all jobs: one that begins with a dash has a second dash, or a tilde, after it.
const GroupSegment = "-group"

// Plans is the directory of plans, which every member watches.
func (k Keys) Plans() registry.Key { return k.group.Join("plan") }

// Plan is the plan of a job.
func (k Keys) Plan(segment string) registry.Key { return k.group.Join("plan", segment) }

// ClaimsOf is the directory of an incarnation's claims records.
func (k Keys) ClaimsOf(incarnation string) registry.Key { return k.group.Join("claims", incarnation) }

// Claims is the claims record of an incarnation for a job.
func (k Keys) Claims(incarnation, segment string) registry.Key {
	return k.group.Join("claims", incarnation, segment)
}

// Ends is the directory of the copies of claims records that leaders watch, of jobs that others follow.
func (k Keys) Ends() registry.Key { return k.group.Join("ends") }

// EndsOf is the copy of a claims record, which the incarnation's session owns. Its record is an Ends.
func (k Keys) EndsOf(incarnation, segment string) registry.Key {
	return k.group.Join("ends", "~"+shorten(incarnation+"~"+segment, 127))
}

// Pools is the directory of the slots of pools, which members that have jobs with a pool watch.
func (k Keys) Pools() registry.Key { return k.group.Join("pools") }

// Slots is the record of how the slots of a pool are dealt, see [Slots].
func (k Keys) Slots(pool string) registry.Key { return k.group.Join("pools", pool) }

// Demands is the directory of the demands of incarnations, which leaders watch once a job has a pool.
func (k Keys) Demands() registry.Key { return k.group.Join("demand") }

// Demand is the demand of an incarnation for slots of pools, which its session owns. See [Demand].
func (k Keys) Demand(incarnation string) registry.Key {
	return k.group.Join("demand", "~"+shorten(incarnation, 127))
}

// Posted is the directory of the acts that transactions of users have posted, which leaders watch if the store has such. See [Posted].
func (k Keys) Posted() registry.Key { return k.group.Join("posted") }

// Data is the state that the owner of a shard saves for the next owner. It is never deleted,
// since a job may have fewer shards for a while.
func (k Keys) Data(segment string, shard int) registry.Key {
	return k.group.Join("data", segment, strconv.Itoa(shard))
}

// MaxNameBytes bounds the names of instances, groups and strategies.
const MaxNameBytes = 64

// CheckName checks a name that is part of keys without being escaped.
func CheckName(name string) error {
	if len(name) > MaxNameBytes {
		return fmt.Errorf("%w: name %.20q... is longer than %d bytes", registry.ErrInvalidKey, name, MaxNameBytes)
	}
	if name == "" {
		return fmt.Errorf("%w: empty name", registry.ErrInvalidKey)
	}
	if strings.ContainsAny(name, "/") {
		return fmt.Errorf("%w: name %q has a slash", registry.ErrInvalidKey, name)
	}
	if name[0] == '~' {
		return fmt.Errorf("%w: name %q begins with a tilde", registry.ErrInvalidKey, name)
	}
	return registry.CheckKey(registry.Key(name))
}

// maxHostBytes bounds the names of hosts, as DNS does.
const maxHostBytes = 253

// CheckHost checks the name of a host. It is part of records, not of keys.
func CheckHost(host string) error {
	if host == "" {
		return errors.New("is empty")
	}
	if err := jobname.CheckLine(host, maxHostBytes); err != nil {
		return fmt.Errorf("%.100q %w", host, err)
	}
	return nil
}

// Incarnation returns the name of the incarnation of an instance under a session.
func Incarnation(name string, s registry.SessionID) string { return name + "." + string(s) }

// checkIncarnation checks the name of an incarnation. It is part of keys, and its session is
// part of conditions.
func checkIncarnation(inc string) error {
	i := strings.LastIndexByte(inc, '.')
	if i < 0 || i == len(inc)-1 {
		return fmt.Errorf("%q is not the name of an instance, a dot and a session", inc)
	}
	return registry.CheckKey(registry.Key(inc))
}

// Segment escapes a job's name for use in keys. Letters, digits, dot, underscore and dash stay;
// every other byte becomes a tilde and two hex digits. A leading tilde marks owned keys, so a
// segment that would begin with one gets a dash before it, and so does a name that begins with a
// dash. A long segment is shortened and ends in a hash. Nothing unescapes segments: records
// contain the name.
func Segment(job string) string { return string(appendSegment(nil, job, 128)) }

// appendSegment appends the segment of a name, of at most so many bytes, at least 28.
func appendSegment(b []byte, name string, most int) []byte {
	const hex = "0123456789abcdef"
	start := len(b)
	for i := range len(name) {
		c := name[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '_' || c == '-' || c == '.' && name != "." && name != ".."
		if i == 0 && (c == '-' || !plain) {
			b = append(b, '-')
		}
		if plain {
			b = append(b, c)
			continue
		}
		b = append(b, '~', hex[c>>4], hex[c&15])
	}
	if len(b)-start <= most {
		return b
	}
	return append(b[:start], shortened(string(b[start:]), name, most)...)
}

// shorten returns a name of at most so many bytes, which ends in a hash if it is not name itself.
func shorten(name string, most int) string {
	if len(name) <= most {
		return name
	}
	return shortened(name, name, most)
}

// shortened returns the beginning of a name, with a hash of the text that it stands for.
func shortened(s, text string, most int) string {
	sum := sha256.Sum256([]byte(text))
	hash := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]) // 26 characters
	return s[:most-2-len(hash)] + "~~" + hash
}
