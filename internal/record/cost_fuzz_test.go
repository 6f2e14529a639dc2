package record

import (
	"testing"

	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/internal/test/cost"
	"github.com/rota-dev/rota/internal/test/hostile"
)

// FuzzDecode_Cost decodes a text as each kind of record, plain and deflated. No decode may cost more than cost.Require allows for the
// text, or return a record that cannot be encoded and read again.
func FuzzDecode_Cost(f *testing.F) {
	for _, records := range hostile.Records() {
		for _, r := range records {
			if text, err := inflate(r.Of("settle")); err == nil {
				f.Add(text)
			}
		}
	}
	f.Add([]byte(fullPlan))
	f.Add([]byte(fullClaims))
	f.Add([]byte(`{"job":"settle","last_trigger":4611686018427387904,"triggers":[{"number":4611686018427387904}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		stored, err := deflate(text)
		if err != nil {
			t.Fatal(err)
		}
		for kind, decode := range decoders {
			for _, b := range [][]byte{text, stored} {
				var v any
				var err error
				cost.Require(t, kind, len(text), func() { v, err = decode(b) })
				if err != nil {
					continue
				}
				if again, err := Encode(v); err == nil {
					if _, err := decode(again); err != nil {
						t.Fatalf("%s: encoded and not read again: %v\n%s", kind, err, again)
					}
				}
			}
		}
	})
}

// FuzzMerge_Cost merges two claims records into a plan, and the requests of a control record, as leaders do.
func FuzzMerge_Cost(f *testing.F) {
	f.Add([]byte(fullPlan), []byte(fullClaims), []byte(`{"job":"settle","cancels":[{"shards":"0-3","epoch":1,"attempt":1}]}`))
	f.Add([]byte(fullPlan), []byte(fullClaims), []byte(`{"job":"settle","retiring":{"at":"1970-01-01T00:16:40Z","what":"retire"}}`))
	f.Fuzz(func(t *testing.T, plan, claims, control []byte) {
		p, err := DecodePlan(plan)
		if err != nil {
			return
		}
		c, err := DecodeClaims(claims)
		if err != nil {
			return
		}
		cost.Require(t, "merge", len(plan)+len(claims)+len(control), func() {
			shards := shardset.Range(0, p.Shards())
			p.Watermarks.Fold(c.Watermarks, shards).Split(shards)
			p.Reruns.Merge(c.Running).Merge(c.Reruns)
			p.Failures.With(c.Failures...)
			p.Counts.Add(c.Counts)
			c.Fires.Merge(c.Fires)
			if o, err := DecodeControl(control); err == nil {
				p.Cancels.Merge(o.Cancels)
				if len(o.Override) > 0 {
					MergeDefinition(p.Last().Def, o.Override)
				}
			}
		})
	})
}
