package record

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/shardset"
)

const (
	fullRuns = `[{"shards":"1-3,9","epoch":1,"fire":"1970-01-01T00:16:40.000000001Z","attempt":2,"missed":true,"handed_back":1,"retries":1,"not_before":"1970-01-01T00:16:45Z","retry_delay":"5s"},` +
		`{"shards":"0","epoch":1,"fire":"1970-01-01T00:16:40.000000001Z","trigger":7,"attempt":1}]`
	fullMarks  = `[{"shards":"1-3,9","epoch":1,"fire":"1970-01-01T00:16:40.000000001Z","attempt":2,"trigger":9007199254740993,"trigger_attempt":1},{"shards":"4","trigger":3,"trigger_attempt":1}]`
	fullCounts = `{"claimed":4611686018427387904,"succeeded":2,"failed":3,"skipped":4,"lost":5,"unknown":6,"retried":7}`
	fullEnds   = `"ended":"1970-01-01T00:16:41Z","failures":[{"shards":"1-3,9","epoch":1,"fire":"1970-01-01T00:16:40.000000001Z","attempt":2,` +
		`"missed":true,"handed_back":1,"retries":1,"not_before":"1970-01-01T00:16:45Z","retry_delay":"5s","more":4,"at":"1970-01-01T00:16:40.5Z","error":"日次 <a&b> \"x\"\\\n\u0000\u2028","again":true,"last_trigger":6,"total":3,"work":"#7-hr55fvbgto26m","own_param":true}]`

	fullClaims = `{"job":"settle","watermarks":` + fullMarks + `,"running":` + fullRuns + `,"reruns":` + fullRuns + `,"counts":` + fullCounts + `,` + fullEnds + `}`

	fullPlan = `{"format":1,"job":"settle","paused":true,"schedule_stopped":true,"epochs":[` +
		`{"number":1,"from":null,"until":"1970-01-01T00:16:40Z","definition":{"name":"settle","shards":12,"max":9007199254740993}},` +
		`{"number":2,"from":"1970-01-01T00:16:40Z","definition":{"name":"settle","shards":12},"stored_definition":{"name":"settle","shards":9}}],` +
		`"owners":{"a.s":"0-5","b.t":"6-11","c.u":""},"frozen":"3","disabled":"4,99","watermarks":` + fullMarks + `,"reruns":` + fullRuns + `,` +
		`"triggers":[{"number":7,"at":"1970-01-01T00:16:40Z","epoch":1,"param":"2026-01","shards":"1-3,9"},{"number":8,"at":null,"shards":""},{"number":9,"at":"1970-01-01T00:16:40Z"}],` +
		`"counts":` + fullCounts + `,"problem":"日次","resets":2,"cancels":[{"shards":"2","epoch":1,"fire":"1970-01-01T00:16:40Z","attempt":1}],"group_pause":{"paused":true,"schedule_stopped":true},"unoffered":"1970-01-01T00:16:40Z",` + fullEnds + `,` +
		`"decisions":[{"at":"1970-01-01T00:16:40Z","term":7,"by":"a","what":"assign 0-3 to a","again":2},{"at":"1970-01-01T00:16:40Z","term":8,"by":"a","what":"fail over 3 of b","lost":["b.5"]}],` +
		`"a_novelty":9007199254740993,"novelty":{"x":[1.50,2]}}`
)

func fullRecords(t *testing.T) (*Plan, *Claims) {
	t.Helper()
	const at = Instant(1_000_000_000_000)
	shards, none := shardset.Of(1, 2, 3, 9), shardset.Set{}
	first, err := NewEpoch(1, 0, json.RawMessage(`{"name":"settle","shards":12,"max":9007199254740993}`))
	require.NoError(t, err)
	first.Until = at
	second, err := NewEpoch(2, at, json.RawMessage(`{"name":"settle","shards":12}`))
	require.NoError(t, err)
	second.Stored = json.RawMessage(`{"name":"settle","shards":9}`)
	plan := &Plan{
		Format: Format, Job: "settle", Paused: true, Stopped: true,
		Epochs: []Epoch{first, second},
		Owners: map[string]shardset.Set{"b.t": shardset.Range(6, 12), "a.s": shardset.Range(0, 6), "c.u": {}},
		Frozen: shardset.Of(3), Disabled: shardset.Of(4, 99),
		Watermarks: Watermarks{
			{shards, Watermark{Epoch: 1, Fire: at + 1, Attempt: 2, Trigger: 1<<53 + 1, TriggerAttempt: 1}},
			{shardset.Of(4), Watermark{Trigger: 3, TriggerAttempt: 1}},
		},
		Reruns: Runs{
			{shards, Ref{Epoch: 1, Fire: at + 1, Attempt: 2, Missed: true, HandedBack: 1, Retries: 1, NotBefore: at + 5e9, RetryDelay: 5e9}},
			{shardset.Of(0), Ref{Epoch: 1, Fire: at + 1, Trigger: 7, Attempt: 1}},
		},
		Triggers: []Trigger{{Number: 7, At: at, Epoch: 1, Param: "2026-01", Shards: &shards}, {Number: 8, Shards: &none}, {Number: 9, At: at}},
		Counts:   Counts{1 << 62, 2, 3, 4, 5, 6, 7}, Problem: "日次", Resets: 2, Cancels: Runs{{shardset.Of(2), Ref{Epoch: 1, Fire: at, Attempt: 1}}}, GroupPause: &OwnHold{true, true}, Unoffered: at, Ended: at + 1e9,
		Decisions: []Decision{{at, 7, "a", "assign 0-3 to a", 2, nil}, {at, 8, "a", "fail over 3 of b", 0, []string{"b.5"}}},
		extra:     Fields{"novelty": json.RawMessage(`{"x":[1.50,2]}`), "a_novelty": json.RawMessage(`9007199254740993`)},
	}
	plan.Failures = Failures{{plan.Reruns[0], 4, at + 5e8, "日次 <a&b> \"x\"\\\n\x00\u2028", true, 6, 3, "#7-hr55fvbgto26m", true}}
	claims := &Claims{
		Job: "settle", Watermarks: plan.Watermarks, Running: plan.Reruns, Reruns: plan.Reruns,
		Counts: plan.Counts, Ended: plan.Ended, Failures: plan.Failures,
	}
	return plan, claims
}

// TestStoredForm pins the bytes that fleets of mixed versions exchange.
func TestStoredForm(t *testing.T) {
	plan, claims := fullRecords(t)
	t.Run("of a plan", func(t *testing.T) {
		b, err := Encode(plan)
		require.NoError(t, err)
		assert.Equal(t, fullPlan, string(b))
		decoded, err := DecodePlan(b)
		require.NoError(t, err)
		assert.Equal(t, plan, decoded)
	})
	t.Run("of a claims record", func(t *testing.T) {
		b, err := Encode(claims)
		require.NoError(t, err)
		assert.Equal(t, fullClaims, string(b))
		decoded, err := Decode[Claims](b)
		require.NoError(t, err)
		assert.Equal(t, *claims, decoded)
	})
	t.Run("of records without values", func(t *testing.T) {
		for want, v := range map[string]any{
			`{"job":""}`:                                                                        &Claims{},
			`{"job":"","counts":{"lost":1}}`:                                                    &Claims{Counts: Counts{Lost: 1}},
			`{"format":0,"job":"","epochs":[],"owners":{}}`:                                     &Plan{Epochs: []Epoch{}, Owners: map[string]shardset.Set{}},
			`{"job":"","watermarks":[{"shards":""}]}`:                                           &Claims{Watermarks: Watermarks{{}}},
			`{"job":"","running":[{"shards":"","epoch":0,"fire":null,"attempt":0}]}`:            &Claims{Running: Runs{{}}},
			`{"job":"","failures":[{"shards":"","epoch":0,"fire":null,"attempt":0,"at":null}]}`: &Claims{Failures: Failures{{}}},
		} {
			b, err := Encode(v)
			require.NoError(t, err)
			assert.Equal(t, want, string(b))
		}
	})
}

// TestDecode_AcceptsAnySpellingOfJSON decodes records as an operator's tools may have written them.
func TestDecode_AcceptsAnySpellingOfJSON(t *testing.T) {
	plan, claims := fullRecords(t)
	for name, spell := range map[string]func(string) string{
		"indented": func(s string) string {
			var b bytes.Buffer
			require.NoError(t, json.Indent(&b, []byte(s), " ", "\t"))
			return b.String() + "\n"
		},
		"escaped": func(s string) string {
			return strings.ReplaceAll(strings.ReplaceAll(s, "settle", `s\u0065ttle`), `"fire"`, `"fir\u0065"`)
		},
		"a field twice": func(s string) string {
			return strings.Replace(s, `{`, `{"job":"other","watermarks":[{"shards":"9"}],`, 1)
		},
		"a field of null": func(s string) string { return strings.Replace(s, `,"ended"`, `,"problem":null,"ended"`, 1) },
		"an offset in time": func(s string) string {
			return strings.ReplaceAll(s, "1970-01-01T00:16:40.000000001Z", "1970-01-01T01:16:40.000000001+01:00")
		},
	} {
		t.Run(name, func(t *testing.T) {
			decoded, err := Decode[Claims]([]byte(spell(fullClaims)))
			require.NoError(t, err)
			assert.Equal(t, *claims, decoded)
			p, err := DecodePlan([]byte(spell(fullPlan)))
			require.NoError(t, err)
			for i := range p.Epochs { // definitions keep their spelling
				var b bytes.Buffer
				require.NoError(t, json.Compact(&b, p.Epochs[i].Def))
				p.Epochs[i].Def = json.RawMessage(strings.ReplaceAll(b.String(), `\u0065`, "e"))
				if p.Epochs[i].Stored != nil {
					b.Reset()
					require.NoError(t, json.Compact(&b, p.Epochs[i].Stored))
					p.Epochs[i].Stored = json.RawMessage(strings.ReplaceAll(b.String(), `\u0065`, "e"))
				}
			}
			for name, value := range p.extra {
				var b bytes.Buffer
				require.NoError(t, json.Compact(&b, value))
				p.extra[name] = b.Bytes()
			}
			assert.Equal(t, plan, p)
		})
	}
}

func TestDecode_RejectsWrongJSON(t *testing.T) {
	for name, bad := range map[string]string{
		"empty":                "",
		"blank":                " ",
		"cut off":              fullClaims[:len(fullClaims)-1],
		"followed by text":     fullClaims + "x",
		"followed by a record": fullClaims + fullClaims,
		"an array":             "[]",
		"a fraction":           strings.Replace(fullClaims, `"attempt":2`, `"attempt":2.5`, 1),
		"an exponent":          strings.Replace(fullClaims, `"attempt":2`, `"attempt":2e1`, 1),
		"a leading zero":       strings.Replace(fullClaims, `"attempt":2`, `"attempt":02`, 1),
		"a negative count":     strings.Replace(fullClaims, `"lost":5`, `"lost":-5`, 1),
		"a number too large":   strings.Replace(fullClaims, `4611686018427387904`, `18446744073709551616`, 1),
		"a number as text":     strings.Replace(fullClaims, `"attempt":2`, `"attempt":"2"`, 1),
		"a text as number":     strings.Replace(fullClaims, `"settle"`, `7`, 1),
		"a bad instant":        strings.Replace(fullClaims, `00:16:41Z`, `00:16:41`, 1),
		"an instant too far":   strings.Replace(fullClaims, `"ended":"1970`, `"ended":"2970`, 1),
		"bad shards":           strings.Replace(fullClaims, `"1-3,9"`, `"3-1"`, 1),
		"a control character":  strings.Replace(fullClaims, `settle`, "set\tle", 1),
		"a comma too many":     strings.Replace(fullClaims, `,"counts"`, `,,"counts"`, 1),
		"deeply nested":        strings.Replace(fullClaims, `{`, `{"x":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+`,`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, fullClaims, bad)
			_, err := Decode[Claims]([]byte(bad))
			assert.Error(t, err)
		})
	}
}
