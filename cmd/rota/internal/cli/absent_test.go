package cli

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
)

// joinNote joins the lines of a note.
func joinNote(text string) string { return strings.ReplaceAll(text, "\n      ", " ") }

// A namespace or a group without any record is a mistake in a name, and not a healthy fleet.
func TestAbsentFleet(t *testing.T) {
	const nothing = "There is no fleet: etcd://store has no records below nosuch/groups/default, nor the record nosuch/meta. Check -n, -g and the address of the registry.\n"
	const noGroup = "There is no fleet: etcd://store has no records below billing/groups/nosuch. Groups of namespace \"billing\" with live instances: default.\n"
	inFleet(t, func(t *testing.T, f *fleet) {
		first := f.start("web-1", nil)
		for line, want := range map[string]string{
			"jobs": "no jobs\n\nnote  " + nothing, "instances": "no instances\n\nnote  " + nothing, "doctor": "note  " + nothing,
		} {
			r := f.run(line + " -n nosuch")
			assert.Equal(t, exit.Usage, r.code, line)
			assert.Equal(t, want, joinNote(r.out), line)
			assert.Equal(t, exit.Usage, f.run(line+" -g nosuch").code, line)
			assert.Contains(t, joinNote(f.run(line+" -g nosuch").out), noGroup, line)

			var v struct {
				Version int
				Note    string
			}
			r = f.run(line + " -n nosuch -o json")
			assert.Equal(t, exit.Usage, r.code, line)
			require.NoError(t, json.Unmarshal([]byte(r.out), &v), line)
			assert.Equal(t, nothing, v.Note+"\n", line)
		}
		for _, line := range []string{"acts", "decisions", "moves"} {
			r := f.run(line + " -n nosuch")
			assert.Equal(t, exit.Usage, r.code, line)
			assert.Contains(t, r.err, nothing, line)
			assert.Empty(t, r.out, line)
		}
		for _, line := range []string{
			"pause tick", "resume tick", "trigger tick", "disable tick --shards 0", "override tick --clear", "retry tick --fire 01:00", "retire tick --yes",
			"unretire tick", "cancel tick --yes", "forget tick --yes", "job tick", "shards tick", "wait tick --for idle",
		} {
			r := f.run(line + " -n nosuch")
			assert.Equal(t, exit.Usage, r.code, line)
			assert.Contains(t, r.err, nothing, line)
		}
		assert.Equal(t, exit.Usage, f.run("dump -n nosuch").code)
		r := f.run("pause --all --yes -n later")
		assert.Equal(t, exit.OK, r.code, "it may come before the first start")
		assert.Contains(t, r.out, "There is no fleet: etcd://store has no records below later/groups/default")
		assert.Contains(t, r.out, " The pause holds for its start.\n")
		assert.NotContains(t, f.run("pause --all --yes").out, "no fleet")
		require.Equal(t, exit.OK, f.run("resume --all").code)

		// A fleet without jobs is one, also when it has stopped.
		assert.Equal(t, result{exit.OK, "nothing found\n", "# billing/default\n"}, f.run("doctor"))
		for _, state := range []string{"runs", "has stopped"} {
			assert.Equal(t, result{exit.OK, "no jobs\n", "# billing/default\n"}, f.run("jobs"), state)
			for _, line := range []string{"instances", "acts", "decisions", "moves", "dump"} {
				assert.Equal(t, exit.OK, f.run(line).code, "%s: %s", line, state)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			require.NoError(t, first.Shutdown(ctx))
			cancel()
		}
		r = f.run("doctor")
		assert.Equal(t, exit.NotMet, r.code)
		assert.Contains(t, r.out, "the group has 0 live instances")
	})
}

func TestHistory_NamesWhatItLacks(t *testing.T) {
	now := time.Now()
	url := putHistory(t, now, time.Hour)
	for _, line := range [][]string{
		{"fires", "nosuch"}, {"runs", "nosuch"}, {"runs", "nosuch", "--failed"}, {"fires", "nosuch", "-o", "json"}, {"runs", "nosuch", "-o", "json"},
	} {
		code, out, errs := execute(t, append(line, "-n", "billing", "--history", url)...)
		assert.Equal(t, exit.NoJob, code, "%v: %s", line, errs)
		if line[len(line)-1] == "json" {
			assert.True(t, json.Valid([]byte(out)), out)
			continue
		}
		assert.Regexp(t, `^no (fires|runs)\n\nnote  The history sqlite:.* has nothing of job "nosuch" in billing/default: check the name, -n and -g\.\n$`, joinNote(out))
	}
	code, out, _ := execute(t, "fires", "tenants", "-n", "other", "--history", url)
	assert.Equal(t, exit.NoJob, code)
	assert.Contains(t, joinNote(out), `has nothing of job "tenants" in other/default`)
	code, out, _ = execute(t, "fires", "tenants", "-n", "billing", "--since", "1m", "--history", url)
	assert.Equal(t, exit.OK, code, "the job has older fires")
	assert.Equal(t, "no fires\n", out)
	for _, line := range [][]string{{"fires", "tenants", "--limit", "0"}, {"runs", "tenants", "--limit", "-1"}} {
		code, _, errs := execute(t, append(line, "-n", "billing", "--history", url)...)
		assert.Equal(t, exit.Usage, code)
		assert.Contains(t, errs, `for "--limit" flag: it is below 1`)
	}
}
