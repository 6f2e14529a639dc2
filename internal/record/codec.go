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

	"github.com/rota-dev/rota/internal/shardset"
)

// ErrNewerFormat means that a record was written by a newer version, which must not be
// guessed at.
var ErrNewerFormat = errors.New("newer format")

// fields are the members of a JSON object that this version does not know.
type fields map[string]json.RawMessage

// deflateAbove is the size from which on a record is stored deflated: the worst case, ten
// thousand shards with a watermark each, has to fit a value.
const deflateAbove = 32 << 10

// deflated begins the stored form of such a record; raw deflated data follows. It is not
// readable either way, and as JSON it would be a third longer.
const deflated = "deflate\n"

// Encode returns the stored form of v.
func Encode(v any) ([]byte, error) {
	b, err := marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	if len(b) <= deflateAbove {
		return b, nil
	}
	buf := bytes.NewBufferString(deflated)
	w, err := flate.NewWriter(buf, flate.DefaultCompression)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	_, werr := w.Write(b)
	if err := errors.Join(werr, w.Close()); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return buf.Bytes(), nil
}

// maxInflated bounds what a stored record may unfold to.
const maxInflated = 16 << 20

// inflate undoes what Encode does to large records.
func inflate(b []byte) ([]byte, error) {
	packed, ok := bytes.CutPrefix(b, []byte(deflated))
	if !ok {
		return b, nil
	}
	out, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxInflated+1))
	if err != nil {
		return nil, fmt.Errorf("inflate: %w", err)
	}
	if len(out) > maxInflated {
		return nil, fmt.Errorf("inflate: longer than %d bytes", maxInflated)
	}
	return out, nil
}

// Decode reads the stored form of a record without unknown fields to keep.
func Decode[T any](b []byte) (T, error) {
	var v T
	b, err := inflate(b)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	return v, err
}

// DecodeMeta reads the record of a namespace, which this version must not touch if a newer
// one has made it.
func DecodeMeta(b []byte) (Meta, error) {
	m, err := Decode[Meta](b)
	if err == nil && m.Format > Format {
		err = fmt.Errorf("%w: format %d, this version knows %d", ErrNewerFormat, m.Format, Format)
	}
	return m, err
}

// DecodeDefinition returns the JSON of a definition and the part that planning needs.
func DecodeDefinition(b []byte) (json.RawMessage, Job, error) {
	b, err := inflate(b)
	if err != nil {
		return nil, Job{}, err
	}
	j, err := ParseJob(b)
	if err != nil {
		return nil, Job{}, err
	}
	var compact bytes.Buffer // as it will stand in plans, to be compared
	if err := json.Compact(&compact, b); err != nil {
		return nil, Job{}, err
	}
	return compact.Bytes(), j, nil
}

// DecodePlan reads and checks a plan.
func DecodePlan(b []byte) (*Plan, error) {
	p, extra, err := decodeKeeping[Plan](b)
	if err != nil {
		return nil, err
	}
	p.extra = extra
	if p.Format > Format {
		return nil, fmt.Errorf("%w: plan has format %d, this version knows %d", ErrNewerFormat, p.Format, Format)
	}
	if err := CheckJobName(p.Job); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	if len(p.Epochs) == 0 {
		return nil, errors.New("epochs: none")
	}
	for i := range p.Epochs {
		e := &p.Epochs[i]
		if i > 0 && e.Gen <= p.Epochs[i-1].Gen {
			return nil, fmt.Errorf("epochs: generation %d follows %d", e.Gen, p.Epochs[i-1].Gen)
		}
		if e.job, err = ParseJob(e.Def); err != nil {
			return nil, fmt.Errorf("epochs: generation %d: %w", e.Gen, err)
		}
		if e.job.Name != p.Job {
			return nil, fmt.Errorf("epochs: generation %d: definition of %q in the plan of %q", e.Gen, e.job.Name, p.Job)
		}
	}
	if err := p.checkOwners(); err != nil {
		return nil, err
	}
	if err := checkDisabled(p.Disabled); err != nil {
		return nil, fmt.Errorf("disabled: %w", err)
	}
	return p, nil
}

func (p *Plan) checkOwners() error {
	given, total := 0, p.Shards()
	var all shardset.Set
	for inc, shards := range p.Owners {
		if err := CheckIncarnation(inc); err != nil {
			return fmt.Errorf("owners: %w", err)
		}
		if most, ok := shards.Max(); ok && most >= total {
			return fmt.Errorf("owners: %s has shard %d of %d", inc, most, total)
		}
		given += shards.Len()
		all = all.Union(shards)
	}
	if all.Len() != given {
		return errors.New("owners: a shard is given twice")
	}
	return nil
}

// MarshalJSON writes the plan and what an earlier reader did not understand of it.
func (p *Plan) MarshalJSON() ([]byte, error) {
	type plain Plan
	return marshalKeeping((*plain)(p), p.extra)
}

func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false) // people read these with etcdctl and zkCli
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// marshalKeeping writes a record and the fields of it that this version does not know.
func marshalKeeping(plain any, extra fields) ([]byte, error) {
	b, err := marshal(plain)
	if err != nil {
		return nil, err
	}
	return appendFields(b, extra)
}

// appendFields adds members to the JSON of an object.
func appendFields(b []byte, extra fields) ([]byte, error) {
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

// decodeKeeping decodes a record and the fields of it that this version does not know.
func decodeKeeping[T any](b []byte) (*T, fields, error) {
	v := new(T)
	b, err := inflate(b)
	if err != nil {
		return v, nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if d.Decode(v) == nil && d.InputOffset() == int64(len(b)) {
		return v, nil, nil // without unknown fields, a second pass would double the cost
	}
	v = new(T)
	if err := json.Unmarshal(b, v); err != nil {
		return v, nil, err
	}
	var extra fields
	if err := json.Unmarshal(b, &extra); err != nil {
		return v, nil, err
	}
	known := fieldNames(reflect.TypeFor[T]())
	maps.DeleteFunc(extra, func(name string, _ json.RawMessage) bool {
		// Package json matches names in any case. A field that is decoded and also kept would
		// overrule the change that the record is rewritten for.
		return slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
	})
	if len(extra) == 0 {
		return v, nil, nil
	}
	return v, extra, nil
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

// encodedLen returns how many bytes v takes in a record.
func encodedLen(v any) int {
	b, err := marshal(v)
	if err != nil {
		panic(err) // v is made of types that always encode
	}
	return len(b)
}
