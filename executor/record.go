package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
)

// extraFields are the fields of a record that this version does not know. They are preserved
// when an old binary rewrites a record of a newer one.
type extraFields map[string]json.RawMessage

// marshalRecord returns the struct v and the extra fields as one JSON object in canonical
// form: keys sorted, no spaces.
func marshalRecord(v any, extra extraFields) ([]byte, error) {
	known, err := marshalPlain(v)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(extra)
	if err := json.Unmarshal(known, &all); err != nil {
		return nil, err
	}
	return marshalPlain(all) // a map is written in the order of its keys
}

// marshalPlain is json.Marshal without \u003c for <, so that a record stays readable in
// the tools of its store.
func marshalPlain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// unmarshalRecord decodes data into the struct that v points to and returns the fields that
// the struct does not have. A field without omitempty or omitzero in its tag is required, so
// that an incomplete record is an error. All errors are returned, joined, with field names.
//
// Unlike json.Unmarshal, it matches names case-sensitively and refuses null.
func unmarshalRecord(data []byte, v any) (extraFields, error) {
	var all extraFields
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	var errs []error
	record := reflect.ValueOf(v).Elem()
	for i := range record.NumField() {
		name, options, _ := strings.Cut(record.Type().Field(i).Tag.Get("json"), ",")
		if name == "" {
			continue // not stored
		}
		raw, ok := all[name]
		delete(all, name)
		if !ok && options != "" {
			continue
		}
		if err := unmarshalField(raw, record.Field(i).Addr().Interface()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if len(all) == 0 {
		all = nil
	}
	return all, errors.Join(errs...)
}

func unmarshalField(raw json.RawMessage, field any) error {
	switch {
	case raw == nil:
		return errors.New("is missing")
	case string(raw) == "null":
		return errors.New("is null")
	}
	return json.Unmarshal(raw, field)
}
