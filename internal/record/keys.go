package record

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rota-dev/rota/registry"
)

// Keys knows where the records of one group live.
type Keys struct {
	ns, group registry.Key
}

// NewKeys returns the keys of a group of a namespace, or an error naming the rule that
// one of them breaks.
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
	// The longest key of all: claims/<incarnation>/<job>.
	if err := registry.CheckKey(k.Claims(strings.Repeat("x", 128), strings.Repeat("x", 128))); err != nil {
		return Keys{}, fmt.Errorf("namespace %q and group %q: %w: too long together", namespace, group, registry.ErrInvalidKey)
	}
	return k, nil
}

// Meta holds the format of the store and the fence base.
func (k Keys) Meta() registry.Key { return k.ns.Join("meta") }

// Instances is the directory of live instances; watched by leaders.
func (k Keys) Instances() registry.Key { return k.ns.Join("instances") }

// Instance is the owned key that makes a name unique.
func (k Keys) Instance(name string) registry.Key { return k.ns.Join("instances", "~"+name) }

// Office is the directory that every member watches for the leader's coming and going.
func (k Keys) Office() registry.Key { return k.group.Join("office") }

// Leader is the record whose commit number is the term.
func (k Keys) Leader() registry.Key { return k.group.Join("office", "leader") }

// Present is owned by the leader's session: when it vanishes the office is vacant.
func (k Keys) Present() registry.Key { return k.group.Join("office", "~present") }

// Members is the directory of incarnations that take part.
func (k Keys) Members() registry.Key { return k.group.Join("members") }

// Member is the record of one incarnation.
func (k Keys) Member(incarnation string) registry.Key { return k.group.Join("members", incarnation) }

// Jobs is the directory of definitions.
func (k Keys) Jobs() registry.Key { return k.group.Join("jobs") }

// Job is the definition of a job, by its segment.
func (k Keys) Job(segment string) registry.Key { return k.group.Join("jobs", segment) }

// Controls is the directory of operators' intent.
func (k Keys) Controls() registry.Key { return k.group.Join("control") }

// Control is the intent for a job.
func (k Keys) Control(segment string) registry.Key { return k.group.Join("control", segment) }

// GroupControl is the intent for all jobs of the group.
func (k Keys) GroupControl() registry.Key { return k.group.Join("control", GroupSegment) }

// GroupSegment stands where the segment of a job stands otherwise. It is no job's: a
// segment that begins with a dash goes on with another one, or with a tilde.
const GroupSegment = "-group"

// Plans is the directory that members act on; watched by every member.
func (k Keys) Plans() registry.Key { return k.group.Join("plan") }

// Plan is the plan of a job.
func (k Keys) Plan(segment string) registry.Key { return k.group.Join("plan", segment) }

// ClaimsOf is the directory of an incarnation's claims.
func (k Keys) ClaimsOf(incarnation string) registry.Key { return k.group.Join("claims", incarnation) }

// Claims is an incarnation's record of a job.
func (k Keys) Claims(incarnation, segment string) registry.Key {
	return k.group.Join("claims", incarnation, segment)
}

// Data is what the owner of a job's shard keeps for the next one. It is never deleted: a job
// may have fewer shards for a while.
func (k Keys) Data(segment string, shard int) registry.Key {
	return k.group.Join("data", segment, strconv.Itoa(shard))
}

// MaxNameBytes bounds the names of instances, groups and strategies.
const MaxNameBytes = 64

// CheckName checks a name that stands in keys as it is.
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

// MaxHostBytes bounds the names of hosts: as many as the name of a host may have.
const MaxHostBytes = 253

// CheckHost checks the name of a host, which stands in records only.
func CheckHost(host string) error {
	if host == "" {
		return errors.New("is empty")
	}
	if err := checkLine(host, MaxHostBytes); err != nil {
		return fmt.Errorf("%.100q %w", host, err)
	}
	return nil
}

// Incarnation names one session of an instance.
func Incarnation(name string, s registry.SessionID) string { return name + "." + string(s) }

// CheckIncarnation checks the name of an incarnation: it stands in keys, and conditions name its
// session.
func CheckIncarnation(inc string) error {
	i := strings.LastIndexByte(inc, '.')
	if i < 0 || i == len(inc)-1 {
		return fmt.Errorf("%q is not the name of an instance, a dot and a session", inc)
	}
	return registry.CheckKey(registry.Key(inc))
}

// MaxJobNameBytes bounds the names of jobs.
const MaxJobNameBytes = 100

// CheckJobName checks the name of a job: text that a person can read in a log line.
func CheckJobName(name string) error {
	if name == "" {
		return errors.New("is empty")
	}
	return checkLine(name, MaxJobNameBytes)
}

// checkLine checks a text that a person is to read in a line of a log.
func checkLine(text string, maxBytes int) error {
	switch {
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("has a control character")
	case len(text) > maxBytes:
		return fmt.Errorf("has %d bytes, at most %d", len(text), maxBytes)
	case !utf8.ValidString(text):
		return errors.New("is not UTF-8")
	}
	return nil
}

// Segment escapes a job's name for use in keys. Letters, digits, dot, underscore and
// dash stay; every other byte becomes a tilde and two hex digits. A segment may not begin
// with a tilde, which marks owned keys, so one that would gets a dash before it, as does a
// name that begins with a dash. What gets too long ends in a hash. Records carry the name
// itself, so nothing needs to be unescaped.
func Segment(job string) string {
	var b strings.Builder
	for i := range len(job) {
		c := job[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '_' || c == '-' || c == '.' && job != "." && job != ".."
		if i == 0 && (c == '-' || !plain) {
			b.WriteByte('-')
		}
		if plain {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('~')
		if c < 0x10 {
			b.WriteByte('0')
		}
		b.WriteString(strconv.FormatUint(uint64(c), 16))
	}
	s := b.String()
	const most = 128
	if len(s) <= most {
		return s
	}
	sum := sha256.Sum256([]byte(job))
	hash := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]) // 26 characters
	return s[:most-2-len(hash)] + "~~" + hash
}
