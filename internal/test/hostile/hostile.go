// Package hostile makes records that whoever may write to the store can put there: each costs a reader without bounds minutes
// or gigabytes, or stops a job.
package hostile

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Pack returns the stored form of a long record.
func Pack(text string) []byte {
	return slices.Concat([]byte("deflate\n"), deflate(text, (*flate.Writer).Close))
}

// deflate returns compressed text, which end ends.
func deflate(text string, end func(*flate.Writer) error) []byte {
	var buf bytes.Buffer
	w, err := flate.NewWriter(&buf, flate.DefaultCompression)
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = end(w)
	}
	if err != nil {
		panic(err) // a buffer takes everything
	}
	return buf.Bytes()
}

// Record is the text of a record that no version wrote, of the job "JOB".
type Record struct {
	head   string        // up to the last name of the job
	tail   func() []byte // the stored form of the rest
	packed bool
}

func newRecord(text string, packed bool) Record {
	at := 0
	if i := strings.LastIndex(text, jobName); i >= 0 {
		at = i + len(jobName)
	}
	r := Record{text[:at], func() []byte { return []byte(text[at:]) }, packed}
	if packed {
		// Megabytes, which are compressed once for all jobs: after a flush, another stream of deflate may follow.
		r.tail = sync.OnceValue(func() []byte { return deflate(text[at:], (*flate.Writer).Close) })
	}
	return r
}

const jobName = `"JOB"`

// Of returns the stored form of the record for a job.
func (r Record) Of(job string) []byte {
	head := strings.ReplaceAll(r.head, jobName, strconv.Quote(job))
	if !r.packed {
		return slices.Concat([]byte(head), r.tail())
	}
	return slices.Concat([]byte("deflate\n"), deflate(head, (*flate.Writer).Flush), r.tail())
}

// Records returns hostile records by kind and by a part of the refusal that they get.
func Records() map[string]map[string]Record {
	const plan = `{"format":1,"job":"JOB","epochs":[{"number":1,"from":"2026-05-05T00:00:00Z","definition":{"name":"JOB","shards":16}}],"owners":{}`
	repeat := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strings.ReplaceAll(format, "#", fmt.Sprint(i+1)))
		}
		return b.String()
	}
	pack := func(text string) Record { return newRecord(text, true) }
	plain := func(text string) Record { return newRecord(text, false) }
	planWith := func(fields string) Record {
		return pack(strings.Replace(plan, `"owners":{}`, fields, 1) + "}")
	}
	const control = `{"job":"JOB","last_trigger":`
	return map[string]map[string]Record{
		"plan": {
			"owners: 28000 for 16 shards":               planWith(`"owners":{` + repeat(`"a#.1":""`, 28_000) + `}`),
			"inflate: longer than":                      planWith(`"owners":{},"later":"` + strings.Repeat("x", 15<<20) + `"`),
			"a string of ":                              planWith(`"owners":{},"problem":"` + strings.Repeat("x", 3<<20) + `"`),
			"in fields that this version does not know": planWith(`"owners":{},` + repeat(`"later#":"`+strings.Repeat("x", 1000)+`"`, 2000)),
			"lists of more than 100000 elements":        planWith(`"owners":{},"later":[` + strings.TrimSuffix(strings.Repeat(`[`+repeat(`0`, 9_000)+`],`, 12), ",") + `]`),
			"\"epochs\": a list of more than": pack(`{"format":1,"job":"JOB","owners":{},"epochs":[` + repeat(`{"number":#,"definition":{"name":"a","shards":1}}`, 44_000) +
				`],"reruns":[` + strings.Repeat(`{"shards":"0","epoch":44000},`, 9999) + `{"shards":"0","epoch":44000}]}`),
			"epochs: 65, at most 64":              pack(`{"format":1,"job":"JOB","owners":{},"epochs":[` + repeat(`{"number":#,"definition":{"name":"JOB","shards":1}}`, 65) + `]}`),
			"failures: 9999 entries":              planWith(`"owners":{},"failures":[` + repeat(`{}`, 9999) + `]`),
			"decisions: 9999 entries":             planWith(`"owners":{},"decisions":[` + repeat(`{}`, 9999) + `]`),
			"\"watermarks\": a list of more than": planWith(`"owners":{},"watermarks":[` + repeat(`{"shards":"7"}`, 20_000) + `]`),
			"reruns: epoch 7":                     planWith(`"owners":{},"reruns":[{"shards":"1","epoch":7,"fire":"2026-05-05T00:00:00Z","attempt":2}]`),
			"reruns: shard 16 of 16 in epoch 1":   planWith(`"owners":{},"reruns":[{"shards":"1,16","epoch":1,"fire":"2026-05-05T00:00:00Z","attempt":2}]`),
			"nested deeper than":                  planWith(`"owners":{},"later":` + strings.Repeat("[", 90_000)),
			"triggers: 3000 entries":              planWith(`"owners":{},"triggers":[` + repeat(`{"number":#}`, 3000) + `]`),
			"is above 4611686018427387904":        plain(strings.Replace(plan+"}", `"number":1`, `"number":9223372036854775807`, 1)),
			" bytes, at most 131072":              plain(plan + strings.Repeat(" ", 132<<10-len(plan))),
			"owners: a shard has two owners":      planWith(`"owners":{"a.1":"0-3","b.2":"3-7"}`),
		},
		"control": {
			"triggers: 3000 entries":                      pack(control + `3000,"triggers":[` + repeat(`{"number":#,"at":null}`, 3000) + `]}`),
			"is above 4611686018427387904":                plain(control + `18446744073709551615}`),
			"\"cancels\": a list of more than":            pack(control + `1,"cancels":[` + repeat(`{"shards":"7"}`, 20_000) + `]}`),
			"cancels: shard 10000":                        plain(control + `1,"cancels":[{"shards":"10000","epoch":1}]}`),
			"\"disabled_instances\": a list of more than": pack(control + `1,"disabled_instances":[` + repeat(`"a#"`, 50_000) + `]}`),
			"\"retries\": a list of more than":            pack(control + `1,"retries":[` + repeat(`{}`, 90_000) + `]}`),
			"\"acts\": a list of more than":               pack(control + `1,"acts":[` + repeat(`{}`, 20_000) + `]}`),
			"\"fires\": a list of more than":              pack(control + `1,"last_backfill":1,"backfills":[{"number":1,"parallel":1,"fires":[` + repeat(`null`, 90_000) + `]}]}`),
		},
		"group control": {
			"\"acts\": a list of more than": pack(`{"acts":[` + repeat(`{}`, 90_000) + `]}`),
		},
		"claims": {
			"\"watermarks\": a list of more than": pack(`{"job":"JOB","watermarks":[` + repeat(`{"shards":"7"}`, 20_000) + `]}`),
			"running: shard 1000000":              plain(`{"job":"JOB","running":[{"shards":"1000000","epoch":1,"attempt":1}]}`),
		},
		"definition": {
			"it names 40001 jobs":          plain(`{"name":"JOB","shards":1,"schedule":"after ` + strings.Repeat("a,", 40_000) + `a"}`),
			"run_on: 9000 labels":          pack(`{"name":"JOB","shards":1,"run_on":{` + repeat(`"k#":""`, 9000) + `}}`),
			"is above 4611686018427387904": plain(`{"name":"JOB","shards":1,"revision":9223372036854775807}`),
			"shards is 1000000000":         plain(`{"name":"JOB","shards":1000000000}`),
			"bytes, at most 131072":        pack(`{"name":"JOB","shards":1,"later":{` + strings.Repeat(" ", 1<<20) + `}}`),
		},
		"meta": {
			"is above 4611686018427387904": plain(`{"format":1,"fence_base":9223372036854775807}`),
		},
	}
}
