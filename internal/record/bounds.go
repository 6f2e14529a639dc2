package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// The bounds of stored records. Encoders and decoders check the same ones, so that no process writes a record that
// the others refuse. Those of the text are checked before the record is decoded: a record of a few KiB, written by a
// hand or by a faulty program, must not cost its readers seconds or gigabytes.
const (
	// maxInflated bounds the JSON of a record in bytes. The largest plan, of 10,000 shards with a watermark each, eight
	// definitions with overrides and 64 triggers of the longest parameters, has some 4 MB.
	maxInflated = 4 << 20
	// maxStringBytes bounds a string in the JSON of a record, as written there. A parameter of 8192 bytes may need 48 KiB.
	maxStringBytes = 256 << 10
	// maxElements bounds the elements of all arrays of a record. Three bytes of JSON may become an element of 300 bytes.
	maxElements = 100_000
	// maxListed bounds the elements of one array. It spares readers the bytes of an element of a plan, up to 2 KiB with its
	// definition, which they would allocate before they count them. The lists of a member's jobs may be longer.
	maxListed = MaxShards
	// maxDepth bounds how deep objects and arrays are nested.
	maxDepth = 64
	// maxUnknownBytes bounds the fields of a record that this version does not know, together.
	maxUnknownBytes = 64 << 10
	// maxDefinitionBytes bounds the JSON of a definition. Plans hold several.
	maxDefinitionBytes = 128 << 10
	// maxEntries bounds the small lists of a record, such as acts and decisions, with room for later versions.
	maxEntries = 128
	// maxFailureBytes bounds the text of a failure, which has some 200 bytes.
	maxFailureBytes = 4 << 10
)

// MaxNumber bounds each whole number in a record, whatever its sign: counters, revisions, epochs, and the fence base.
// A number above it could not be raised without end, and commit numbers are added to the fence base.
const MaxNumber = 1 << 62

// MaxEpochs bounds the epochs of a plan. Each has a definition, which costs its readers thirty times its length.
const MaxEpochs = 64

// maxInt is MaxNumber, or the greatest int where that is less.
const maxInt = min(MaxNumber, math.MaxInt)

// addInts returns a + b, at most maxInt. Both are at least 0 and at most that.
func addInts(a, b int) int {
	if a > maxInt-b {
		return maxInt
	}
	return a + b
}

// addNumbers returns a + b, at most MaxNumber. Both are at most that.
func addNumbers(a, b uint64) uint64 { return min(a+b, MaxNumber) }

// MaxParamBytes bounds the parameter of a job and of a trigger, MaxWaitingParamBytes the parameters of all triggers of a
// job that wait, as written in JSON: a plan holds them with all else that it holds.
const (
	MaxParamBytes        = 8192
	MaxWaitingParamBytes = 64 << 10
)

// CheckParam checks the parameter of a job or of a trigger. A parameter that is not UTF-8 would be changed by the record.
func CheckParam(param string) error { return CheckText(param, MaxParamBytes) }

// CheckText checks a text of a definition, as CheckParam does a parameter.
func CheckText(text string, most int) error {
	switch {
	case len(text) > most:
		return fmt.Errorf("has %d bytes, at most %d", len(text), most)
	case !utf8.ValidString(text):
		return errors.New("is not UTF-8")
	}
	return nil
}

// ParamBytes returns how many bytes the parameters of triggers have in a record.
func ParamBytes(triggers []Trigger) (n int) {
	for i := range triggers {
		if triggers[i].Param != "" {
			n += EncodedLen(triggers[i].Param)
		}
	}
	return n
}

// EncodeChecked is Encode for the acts of operators, which are rare: it also decodes what it returns, by all rules.
func EncodeChecked(v any) ([]byte, error) {
	b, err := Encode(v)
	if err != nil {
		return nil, err
	}
	switch v.(type) {
	case *Control:
		_, err = DecodeControl(b)
	case *GroupControl:
		_, err = DecodeGroupControl(b)
	case *Defined:
		_, err = DecodeDefined(b)
	case Meta:
		_, err = DecodeMeta(b)
	case json.RawMessage:
		_, _, err = DecodeDefinition(b)
	}
	if err != nil {
		return nil, fmt.Errorf("the record could not be read again: %w", err)
	}
	return b, nil
}

// maxStored bounds the stored form of a record in bytes, as the transaction that writes it.
var maxStored = registry.PortableLimits.ValueBytes

// checkText checks the bounds of a record's JSON in one pass that allocates nothing. It does not check the syntax.
func checkText(b []byte) error {
	if len(b) > maxInflated {
		return fmt.Errorf("%d bytes of JSON, at most %d", len(b), maxInflated)
	}
	var arrays [maxDepth]array // zero for objects
	var text []byte            // the last one, which is the key of an array that follows
	depth, elements := 0, 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; c {
		case '"':
			n := stringLen(b[i+1:])
			if n > maxStringBytes {
				return fmt.Errorf("a string of %d bytes, at most %d", n, maxStringBytes)
			}
			text = b[i+1 : i+1+n]
			i += n + 1
		case '[', '{':
			if depth == maxDepth {
				return fmt.Errorf("nested deeper than %d", maxDepth)
			}
			arrays[depth] = array{}
			if c == '[' {
				arrays[depth] = array{text, 1}
				elements++
			}
			depth++
		case ']', '}':
			depth = max(depth-1, 0)
		case ',':
			if depth == 0 || arrays[depth-1].elements == 0 {
				break
			}
			elements++
			if a := &arrays[depth-1]; a.elements < maxListed || isLongList(a.key) {
				a.elements++
			} else {
				return fmt.Errorf("%.40q: a list of more than %d elements", a.key, maxListed)
			}
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			n, err := checkNumber(b[i:])
			if err != nil {
				return err
			}
			i += n - 1
		}
		if elements > maxElements {
			return fmt.Errorf("lists of more than %d elements", maxElements)
		}
	}
	return nil
}

// array is an array whose end has not been reached.
type array struct {
	key      []byte // as written, so that one in capitals or with escapes is not among the long lists
	elements int
}

// isLongList reports whether the list with a key has an element for each job.
func isLongList(key []byte) bool {
	switch string(key) {
	case "jobs", "unsupported", "revisions", "locals":
		return true
	}
	return false
}

// stringLen returns how many bytes of b precede the quote that ends a string.
func stringLen(b []byte) int {
	for n := 0; ; n++ {
		i := bytes.IndexByte(b[n:], '"')
		if i < 0 {
			return len(b)
		}
		n += i
		escapes := 0
		for n-escapes > 0 && b[n-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return n
		}
	}
}

// checkNumber checks the number at the start of b, and returns its length. A fraction is no counter.
func checkNumber(b []byte) (length int, err error) {
	whole := true
	for ; length < len(b); length++ {
		if c := b[length]; c >= '0' && c <= '9' {
			continue
		} else if c != '.' && c != 'e' && c != 'E' && c != '+' && c != '-' {
			break
		}
		whole = false
	}
	if length < maxNumberDigits || !whole {
		return length, nil
	}
	if n, err := strconv.ParseUint(string(b[:length]), 10, 64); err != nil || n > MaxNumber {
		return length, fmt.Errorf("the number %.40s is above %d", b[:length], uint64(MaxNumber))
	}
	return length, nil
}

// maxNumberDigits is how many digits MaxNumber has.
const maxNumberDigits = 19

// checkGroups checks the number of groups of shards of a list, and their shards.
func checkGroups[T any](name string, groups []T, shards func(*T) *shardset.Set) error {
	if len(groups) > MaxShards {
		return fmt.Errorf("%s: %d groups, at most %d", name, len(groups), MaxShards)
	}
	for i := range groups {
		if most, ok := shards(&groups[i]).Max(); ok && most >= MaxShards {
			return fmt.Errorf("%s: shard %d, of at most %d", name, most, MaxShards)
		}
	}
	return nil
}

func (ms Watermarks) check(name string) error {
	return checkGroups(name, ms, func(g *WatermarkGroup) *shardset.Set { return &g.Shards })
}

func (rs Runs) check(name string) error {
	return checkGroups(name, rs, func(g *RunGroup) *shardset.Set { return &g.Shards })
}

// shorten cuts texts that only a foreign writer made so long, in place: a few KiB of the store may hold megabytes of them.
func (fs Failures) shorten() {
	for i := range fs {
		if f := &fs[i]; len(f.Error) > maxFailureBytes {
			f.Error = strings.Clone(strings.ToValidUTF8(f.Error[:maxFailureBytes], ""))
		}
	}
}

func checkEpochs(n int) error {
	if n > MaxEpochs {
		return fmt.Errorf("epochs: %d, at most %d", n, MaxEpochs)
	}
	return nil
}

func checkEntries(name string, n int) error {
	if n > maxEntries {
		return fmt.Errorf("%s: %d entries, at most %d", name, n, maxEntries)
	}
	return nil
}

// check checks the bounds of a claims record.
func (c *Claims) check() error {
	return errors.Join(c.Watermarks.check("watermarks"), c.Running.check("running"), c.Reruns.check("reruns"),
		checkEntries("failures", len(c.Failures)), checkEntries("fires", len(c.Fires)))
}

// checkBounds checks the bounds of a plan.
func (p *Plan) checkBounds() error {
	err := errors.Join(checkEpochs(len(p.Epochs)), p.Watermarks.check("watermarks"), p.Reruns.check("reruns"), p.Cancels.check("cancels"),
		checkEntries("triggers", len(p.Triggers)), checkEntries("failures", len(p.Failures)), checkEntries("decisions", len(p.Decisions)))
	if p.Fires != nil {
		err = errors.Join(err, checkEntries("fires", len(p.Fires.Ended)+len(p.Fires.Open)))
	}
	for i := range p.Epochs {
		err = errors.Join(err, checkEntries("epochs: released", len(p.Epochs[i].Released)))
	}
	return err
}

// checkUnknown checks the fields of a record that this version does not know.
func (f Fields) check() error {
	n := 0
	for name, value := range f {
		n += len(name) + len(value)
	}
	if n > maxUnknownBytes {
		return fmt.Errorf("%d bytes in fields that this version does not know, at most %d", n, maxUnknownBytes)
	}
	return nil
}
