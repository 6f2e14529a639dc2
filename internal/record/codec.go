package record

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/jobname"
	"github.com/rota-dev/rota/registry"
)

// ErrNewerFormat reports that a newer version, with another format, wrote the record.
var ErrNewerFormat = errors.New("newer format")

// ErrEdited reports that another writer changed a record of an incarnation. The incarnation no
// longer knows which runs it has claimed, so it gives its session up.
var ErrEdited = fmt.Errorf("%w: another writer changed a record of this incarnation", registry.ErrSessionLost)

// Fields are the members of a JSON object that this version does not know, by name. They are preserved when an old binary
// rewrites a record of a newer one.
type Fields map[string]json.RawMessage

// deflateAbove is the size in bytes above which a record is stored deflated. The largest plan,
// of 10,000 shards with a watermark each, has to fit a value of the store.
const deflateAbove = 32 << 10

// deflated is the prefix of a deflated record. Binary data follows: as JSON, the data would be
// a third longer and no more readable.
const deflated = "deflate\n"

// Encode returns the stored form of v. It fails, with registry.ErrTooLarge if v is too large, rather than return a
// record that breaks a bound of the decoders. It does not check what only a decoder of one kind checks.
func Encode(v any) ([]byte, error) {
	b, err := encodeText(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

func encodeText(v any) ([]byte, error) {
	b, err := marshal(v)
	if err != nil {
		return nil, err
	}
	if len(b) > maxInflated {
		return nil, fmt.Errorf("%w: %d bytes of JSON, at most %d", registry.ErrTooLarge, len(b), maxInflated)
	}
	if err := checkText(b); err != nil {
		return nil, err
	}
	if len(b) > deflateAbove {
		if b, err = deflate(b); err != nil {
			return nil, err
		}
	}
	if len(b) > maxStored {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", registry.ErrTooLarge, len(b), maxStored)
	}
	return b, nil
}

// deflate is the inverse of inflate for a long record.
func deflate(b []byte) ([]byte, error) {
	buf := bytes.NewBufferString(deflated)
	w, err := flate.NewWriter(buf, flate.DefaultCompression)
	if err != nil {
		return nil, err
	}
	_, werr := w.Write(b)
	err = errors.Join(werr, w.Close())
	return buf.Bytes(), err
}

// inflate returns the JSON of a record, which Encode may have deflated, with its bounds checked.
func inflate(b []byte) ([]byte, error) {
	if len(b) > maxStored {
		return nil, fmt.Errorf("%d bytes, at most %d", len(b), maxStored)
	}
	if packed, ok := bytes.CutPrefix(b, []byte(deflated)); ok {
		out, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxInflated+1))
		if err != nil {
			return nil, fmt.Errorf("inflate: %w", err)
		}
		if len(out) > maxInflated {
			return nil, fmt.Errorf("inflate: longer than %d bytes", maxInflated)
		}
		b = out
	}
	return b, checkText(b)
}

// Decode decodes the stored form of a record. It ignores unknown fields.
func Decode[T any](b []byte) (T, error) {
	var v T
	b, err := inflate(b)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	return v, err
}

// DecodeClaims decodes and checks a claims record.
func DecodeClaims(b []byte) (Claims, error) {
	c, err := Decode[Claims](b)
	if err == nil {
		err = c.check()
		c.Failures.shorten()
	}
	return c, err
}

// DecodeEnds decodes and checks the copy of a claims record.
func DecodeEnds(b []byte) (Ends, error) {
	e, err := Decode[Ends](b)
	if err == nil {
		err = e.check()
		e.Failures.shorten()
	}
	return e, err
}

// DecodeMeta decodes the record of a namespace. It fails with ErrNewerFormat if this version
// must not write to the namespace.
func DecodeMeta(b []byte) (Meta, error) {
	m, extra, err := decodeKeeping[Meta](b)
	m.extra = extra
	if err == nil && m.Format > Format {
		err = fmt.Errorf("%w: format %d, this version knows %d", ErrNewerFormat, m.Format, Format)
	}
	return *m, err
}

// DecodePlan decodes and checks a plan.
func DecodePlan(b []byte) (*Plan, error) {
	p, extra, err := decodeKeeping[Plan](b)
	if err != nil {
		return nil, err
	}
	p.extra = extra
	if p.Format > Format {
		return nil, fmt.Errorf("%w: plan has format %d, this version knows %d", ErrNewerFormat, p.Format, Format)
	}
	p.Failures.shorten()
	if err := checkEpochs(len(p.Epochs)); err != nil { // before the cost of each
		return nil, err
	}
	for i := range p.Epochs {
		e := &p.Epochs[i]
		if e.job, err = ParseJob(e.Def); err != nil {
			return nil, fmt.Errorf("epochs: number %d: %w", e.Number, err)
		}
		if len(e.Stored) > 0 {
			if _, err := ParseJob(e.Stored); err != nil { // a leader may have to store it again
				return nil, fmt.Errorf("epochs: number %d: stored_definition: %w", e.Number, err)
			}
		}
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	return p, nil
}

// Check returns the first rule that a plan breaks whose epochs have been parsed.
func (p *Plan) Check() error {
	if err := jobname.Check(p.Job); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	if err := p.checkBounds(); err != nil {
		return err
	}
	if len(p.Epochs) == 0 {
		return errors.New("epochs: none")
	}
	for i := range p.Epochs {
		e := &p.Epochs[i]
		if i > 0 && e.Number <= p.Epochs[i-1].Number {
			return fmt.Errorf("epochs: number %d follows %d", e.Number, p.Epochs[i-1].Number)
		}
		if e.job.Name != p.Job {
			return fmt.Errorf("epochs: number %d: definition of %q in the plan of %q", e.Number, e.job.Name, p.Job)
		}
	}
	if err := p.checkOwners(); err != nil {
		return err
	}
	if err := checkDisabled(p.Disabled); err != nil {
		return fmt.Errorf("disabled: %w", err)
	}
	return p.checkReruns()
}

// checkOwners counts the shards in one pass, and refuses more owners than shards before it reads their sets.
func (p *Plan) checkOwners() error {
	total := p.Shards()
	if len(p.Owners) > total {
		return fmt.Errorf("owners: %d for %d shards", len(p.Owners), total)
	}
	owned := make([]bool, total)
	for inc, shards := range p.Owners {
		if err := checkIncarnation(inc); err != nil {
			return fmt.Errorf("owners: %w", err)
		}
		if most, ok := shards.Max(); ok && most >= total {
			return fmt.Errorf("owners: %s has shard %d of %d", inc, most, total)
		}
		for s := range shards.All() {
			if owned[s] {
				return errors.New("owners: a shard has two owners")
			}
			owned[s] = true
		}
	}
	return nil
}

// checkReruns checks that the plan has the epoch and the shards of each pending run: no owner could claim it.
func (p *Plan) checkReruns() error {
	for _, g := range p.Reruns {
		e, ok := p.Epoch(g.Epoch)
		if !ok {
			return fmt.Errorf("reruns: epoch %d, which the plan does not have", g.Epoch)
		}
		if most, ok := g.Shards.Max(); ok && most >= e.job.Shards {
			return fmt.Errorf("reruns: shard %d of %d in epoch %d", most, e.job.Shards, g.Epoch)
		}
	}
	return nil
}

// MarshalJSON encodes the plan with its unknown fields.
func (p *Plan) MarshalJSON() ([]byte, error) {
	type plain Plan
	return marshalKeeping((*plain)(p), p.extra)
}

func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false) // operators read records with etcdctl and zkCli
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// marshalKeeping encodes a record with its unknown fields.
func marshalKeeping(plain any, extra Fields) ([]byte, error) {
	b, err := marshal(plain)
	if err != nil {
		return nil, err
	}
	return appendFields(b, extra)
}

// appendFields appends fields to the JSON of an object.
func appendFields(b []byte, extra Fields) ([]byte, error) {
	if len(extra) == 0 {
		return b, nil
	}
	more, err := marshal(extra)
	if err != nil {
		return nil, err
	}
	if b = b[:len(b)-1]; len(b) > 1 {
		b = append(b, ',')
	}
	return append(b, more[1:]...), nil
}

// decodeKeeping decodes a record and its unknown fields.
func decodeKeeping[T any](b []byte) (*T, Fields, error) {
	v := new(T)
	b, err := inflate(b)
	if err != nil {
		return v, nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if d.Decode(v) == nil && d.InputOffset() == int64(len(b)) {
		return v, nil, nil // nearly all records: spare them the second pass
	}
	v = new(T)
	if err := json.Unmarshal(b, v); err != nil {
		return v, nil, err
	}
	var extra Fields
	if err := json.Unmarshal(b, &extra); err != nil {
		return v, nil, err
	}
	known := fieldNames(reflect.TypeFor[T]())
	maps.DeleteFunc(extra, func(name string, _ json.RawMessage) bool {
		// Package json matches names in any case. A known field that stayed among the unknown
		// ones would overrule the next change of its value.
		return slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
	})
	if len(extra) == 0 {
		return v, nil, nil
	}
	return v, extra, extra.check()
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// EncodedLen returns how many bytes v takes in a record.
func EncodedLen(v any) int {
	b, err := marshal(v)
	if err != nil {
		panic(err) // callers pass strings and records, which always encode
	}
	return len(b)
}
