// Package frozen keeps records of fleets of released versions. Its tests start a fleet of this version from them, which has to go on with
// all that they say.
package frozen

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Dump are the records of a fleet whose processes had crashed.
type Dump struct {
	At      time.Time `json:"at"`    // of the crash
	Fence   uint64    `json:"fence"` // no fence was greater
	Records []Record  `json:"records"`
}

// Record is one record. One of Value and Raw is set.
type Record struct {
	Key   registry.Key    `json:"key"`
	Value json.RawMessage `json:"value,omitempty"`
	Raw   string          `json:"raw,omitempty"` // base64 of a value that is not JSON
}

// Bytes returns the stored form.
func (r Record) Bytes() ([]byte, error) {
	if r.Value == nil {
		return base64.StdEncoding.DecodeString(r.Raw)
	}
	return r.Value, nil
}

// New returns the records of a store whose sessions have ended.
func New(at time.Time, entries []registry.Entry) Dump {
	d := Dump{At: at.UTC()}
	for _, e := range entries {
		d.Fence = max(d.Fence, e.Modified.Seq)
		r := Record{Key: e.Key, Value: e.Value}
		if !json.Valid(e.Value) {
			r.Value, r.Raw = nil, base64.StdEncoding.EncodeToString(e.Value)
		}
		d.Records = append(d.Records, r)
	}
	return d
}

// Parse parses what Encode returned.
func Parse(text []byte) (Dump, error) {
	var d Dump
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("frozen records: %w", err)
	}
	return d, nil
}

// Encode returns the text of a dump, with a record in each line, so that changes can be read.
func (d Dump) Encode() ([]byte, error) {
	text := fmt.Appendf(nil, "{\"at\":%q,\"fence\":%d,\"records\":[\n", d.At.Format(time.RFC3339Nano), d.Fence)
	for i, r := range d.Records {
		line, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, ",\n"...)
		}
		text = append(text, line...)
	}
	return append(text, "\n]}\n"...), nil
}
