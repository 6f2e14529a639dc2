package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
)

// DecodeDefinition returns the compact JSON of a definition and the part that planning needs.
func DecodeDefinition(b []byte) (json.RawMessage, Job, error) {
	b, err := inflate(b)
	if err != nil {
		return nil, Job{}, err
	}
	j, err := ParseJob(b)
	if err != nil {
		return nil, Job{}, err
	}
	var compact bytes.Buffer // as in plans, so that definitions can be compared
	if err := json.Compact(&compact, b); err != nil {
		return nil, Job{}, err
	}
	return compact.Bytes(), j, nil
}

// EncodeFields returns the struct v and the extra fields as one JSON object in the canonical form of definitions: keys
// sorted, no spaces.
func EncodeFields(v any, extra Fields) ([]byte, error) {
	known, err := marshal(v)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(extra)
	if err := json.Unmarshal(known, &all); err != nil {
		return nil, err
	}
	return marshal(all) // a map is written in the order of its keys
}

// DecodeFields decodes data into the struct that v points to and returns the fields that
// the struct does not have. A field without omitempty or omitzero in its tag is required, so
// that an incomplete definition is an error. All errors are returned, joined, with field names.
//
// Unlike json.Unmarshal, it matches names case-sensitively and refuses null.
func DecodeFields(data []byte, v any) (Fields, error) {
	var all Fields
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	var errs []error
	known := reflect.ValueOf(v).Elem()
	for i := range known.NumField() {
		name, options, _ := strings.Cut(known.Type().Field(i).Tag.Get("json"), ",")
		if name == "" {
			continue // not stored
		}
		raw, ok := all[name]
		delete(all, name)
		if !ok && options != "" {
			continue
		}
		if err := decodeField(raw, known.Field(i).Addr().Interface()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if len(all) == 0 {
		all = nil
	}
	return all, errors.Join(errs...)
}

func decodeField(raw json.RawMessage, field any) error {
	switch {
	case raw == nil:
		return errors.New("is missing")
	case string(raw) == "null":
		return errors.New("is null")
	}
	return json.Unmarshal(raw, field)
}
