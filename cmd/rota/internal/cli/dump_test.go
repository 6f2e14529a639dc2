package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/dump"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

func TestDump_MasksParameters(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		f.start("web-4", nil, executor.Job{
			Name: "secrets", Schedule: schedule.OnTrigger(), Shards: 2, Param: "hunter1", ShardParams: map[int]string{1: "hunter2"},
			StartPaused: true, Handler: executor.HandlerFunc(tenants),
		})
		require.Zero(t, f.run("trigger secrets --param hunter3").code)
		time.Sleep(time.Second)
		_, err := f.server.Client("editor").Txn(t.Context(), registry.Txn{Then: []registry.Op{
			registry.Create("billing/groups/default/control/corrupt", []byte("hunter4")),
			registry.Create("billing/groups/default/data/secrets/0", []byte(`"hunter5"`)),
		}})
		require.NoError(t, err)
		r := f.run("dump --checkpoints")
		require.Equal(t, exit.OK, r.code, r.err)
		assert.NotContains(t, r.out, "hunter")
		open := f.run("dump --params --checkpoints")
		for _, secret := range []string{"hunter1", "hunter2", "hunter3", "hunter5"} {
			assert.Contains(t, open.out, secret)
		}
		var d dump.File
		require.NoError(t, json.Unmarshal([]byte(r.out), &d))
		assert.True(t, d.Masked)
		keys := map[string]int{}
		for _, r := range d.Records {
			keys[filepath.Dir(r.Key)]++
		}
		assert.Equal(t, []int{1, 4, 2, 7, 7, 1}, []int{
			keys["."], keys["instances"], keys["groups/default/election"], keys["groups/default/jobs"], keys["groups/default/plan"],
			keys["groups/default/data/secrets"],
		})
	})
}

func TestRestore(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		require.Zero(t, f.run("disable --host n-9").code)
		require.Zero(t, f.run("set-pool licence 8").code)
		require.Zero(t, f.run("pause --schedule settle").code)
		file := filepath.Join(t.TempDir(), "dump.json")
		save := func(line string) {
			r := f.run(line)
			require.Equal(t, exit.OK, r.code, r.err)
			require.NoError(t, os.WriteFile(file, []byte(r.out), 0o600))
		}
		save("dump")
		r := f.run("restore " + file + " -n copy --yes")
		assert.Equal(t, exit.Usage, r.code)
		assert.Contains(t, r.err, "are masked: make the dump with --params")

		save("dump --params")
		assert.Equal(t, exit.Usage, f.run("restore "+file+" -n copy").code, "asks")
		r = f.run("restore " + file + " -n copy --yes")
		require.Equal(t, exit.OK, r.code, r.err)
		assert.Equal(t, "stored 13 records, kept 0 as they are\n", r.out)
		assert.Equal(t, "stored 0 records, kept 13 as they are\n", f.run("restore "+file+" -n copy --yes").out)
		assert.Equal(t, "backup\nrebuild\n", f.run("jobs -n copy --state paused -o name").out)
		assert.Equal(t, "settle\n", f.run("jobs -n copy --state stopped -o name").out)
		assert.Contains(t, f.run("instances -n copy").out, "hosts n-9")
		assert.Contains(t, f.run("pools -n copy -o json").out, `"name": "licence",
      "size": 8,`, "sizes of pools are intents")
		assert.Contains(t, f.run("job tenants -n copy -o json").out, `"name": "tenants"`)
		assert.Equal(t, "triggered export: #2\nno instance is alive; the run waits for the start of one\n", f.run("trigger export -n copy").out, "numbers go on")

		for name, text := range map[string]string{
			"other.json": `{"a": 1}`, "newer.json": `{"version": 99, "group": "g"}`, "text.json": "no",
			"bad.json": `{"version": 1, "group": "g", "records": [{"key": "groups/g/jobs/x", "value": {"shards": -1}}]}`,
		} {
			bad := filepath.Join(t.TempDir(), name)
			require.NoError(t, os.WriteFile(bad, []byte(text), 0o600))
			r := f.run("restore " + bad + " -n copy --yes")
			assert.Equal(t, exit.Usage, r.code, name)
			assert.Empty(t, r.out)
		}
		assert.Equal(t, exit.Usage, f.run("restore nosuch.json --yes").code)
	})
}

// A command mends records that cannot be read, so that nobody needs a client of the store.
func TestRestore_ReplacesRecordsThatCannotBeRead(t *testing.T) {
	damage := func(t *testing.T, f *fleet, keys ...registry.Key) {
		t.Helper()
		reg := f.server.Client("editor")
		for _, key := range keys {
			e, err := reg.Get(t.Context(), key, registry.ReadOptions{})
			require.NoError(t, err)
			_, err = registry.Apply(t.Context(), reg, registry.Txn{Then: []registry.Op{registry.Set(key, e.Modified, []byte("garbage {"))}})
			require.NoError(t, err)
		}
		time.Sleep(time.Second)
	}
	k, err := record.NewKeys("billing", "default")
	require.NoError(t, err)
	starts := func(t *testing.T, f *fleet, name string) error {
		t.Helper()
		e, err := executor.New(f.server.Client(name), "billing", executor.Options{Instance: name, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := e.Start(ctx); err != nil {
			return err
		}
		return e.Shutdown(ctx)
	}
	job := executor.Job{Name: "settle", Schedule: schedule.Every(time.Minute), Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })}
	t.Run("with a dump", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.start("web-1", nil, job)
			require.Zero(t, f.run("pause settle").code)
			file := filepath.Join(t.TempDir(), "dump.json")
			require.NoError(t, os.WriteFile(file, []byte(f.runUnedited(t.Context(), "dump --params", "").out), 0o600))
			before, err := f.server.Client("editor").Get(t.Context(), k.Meta(), registry.ReadOptions{})
			require.NoError(t, err)

			damage(t, f, k.Meta(), k.Control("settle"), k.Job("settle"))
			require.Error(t, starts(t, f, "web-2"))
			doctor := unwrap(f.run("doctor").out)
			assert.Contains(t, doctor, "with a dump: rota restore FILE; without: rota raise-fences --above N")
			assert.Contains(t, doctor, "with a dump: rota restore FILE, which replaces records that cannot be read")
			r := f.run("restore " + file + " --yes")
			require.Equal(t, exit.OK, r.code, r.err)
			assert.Equal(t, "stored 0 records, kept 0 as they are, replaced 2 that could not be read or were restored from memory\n", r.out)
			after, err := f.server.Client("editor").Get(t.Context(), k.Meta(), registry.ReadOptions{})
			require.NoError(t, err)
			assert.JSONEq(t, string(before.Value), string(after.Value), "with its ID and the base of the fences")
			require.NoError(t, starts(t, f, "web-2"))
			time.Sleep(time.Minute)
			assert.Equal(t, "nothing found\n", f.run("doctor").out)
			assert.Equal(t, "settle\n", f.run("jobs --state paused -o name").out)
		})
	})
	t.Run("or that instances have restored from memory", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.start("web-1", nil, job)
			f.start("web-2", nil, job)
			require.Zero(t, f.run("pause settle --for 3h --by kim --reason migration").code)
			time.Sleep(time.Minute)
			file := filepath.Join(t.TempDir(), "dump.json")
			require.NoError(t, os.WriteFile(file, []byte(f.runUnedited(t.Context(), "dump --params", "").out), 0o600))
			f.server.Partition("web-1") // the leader, which knows who paused
			f.server.Wipe()
			time.Sleep(5 * time.Minute)
			require.Contains(t, unwrap(f.run("job settle").out), "restored from memory")
			r := f.run("restore " + file + " --yes")
			require.Equal(t, exit.OK, r.code, r.err)
			assert.Contains(t, r.out, "replaced 1 that could not be read or were restored from memory")
			time.Sleep(time.Minute)
			assert.Contains(t, unwrap(f.run("job settle").out), "by kim")
		})
	})
	t.Run("without a dump", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.start("web-1", nil, job)
			damage(t, f, k.Meta())
			require.Error(t, starts(t, f, "web-2"))
			r := f.run("raise-fences --above 4000 --yes")
			require.Equal(t, exit.OK, r.code, r.err)
			require.NoError(t, starts(t, f, "web-2"))
		})
	})
	t.Run("but none of a newer version", func(t *testing.T) {
		inFleet(t, func(t *testing.T, f *fleet) {
			f.start("web-1", nil, job)
			reg := f.server.Client("editor")
			e, err := reg.Get(t.Context(), k.Meta(), registry.ReadOptions{})
			require.NoError(t, err)
			_, err = registry.Apply(t.Context(), reg, registry.Txn{Then: []registry.Op{registry.Set(k.Meta(), e.Modified, []byte(`{"format":99}`))}})
			require.NoError(t, err)
			assert.Equal(t, exit.Failed, f.run("raise-fences --above 4000 --yes").code)
		})
	})
}

func TestRestore_DefinedJobs(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		params := offerReports(t, f)
		start := time.Now()
		require.Equal(t, "", f.run("define gone --kind report --every 1m").err)
		require.Equal(t, "", f.run("delete gone --yes").err)
		time.Sleep(time.Minute)
		for _, line := range []string{
			"define rests --kind report --every 1h --param hunter1", "define wakes --kind report --every 1m --param often",
			"define once --kind report --at 2000-01-01T03:30:00Z --param again",
		} {
			require.Equal(t, "", f.run(line).err)
		}
		time.Sleep(3*time.Minute + 10*time.Second)
		require.Equal(t, "", f.run("pause wakes").err)
		time.Sleep(time.Second)
		assert.NotContains(t, f.run("dump").out, "hunter")
		file := filepath.Join(t.TempDir(), "dump.json")
		require.NoError(t, os.WriteFile(file, []byte(f.runUnedited(t.Context(), "dump --params", "").out), 0o600))
		before := f.run("definitions -o name").out

		require.NoError(t, f.members[0].Shutdown(t.Context()))
		f.members, f.server = nil, memory.New()
		time.Sleep(time.Until(start.Add(2*time.Hour + 15*time.Minute)))
		r := f.run("restore " + file + " --yes")
		require.Equal(t, exit.OK, r.code, r.err)
		assert.Equal(t, before, f.run("definitions -o name").out)
		params = offerReports(t, f)
		received := func() (all []string) {
			for len(params) > 0 {
				all = append(all, <-params)
			}
			return all
		}
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"rests hunter1"}, received(), "of the hours in between, none is made up for")
		time.Sleep(time.Hour)
		assert.ElementsMatch(t, []string{"once again", "rests hunter1"}, received())
		assert.Equal(t, "wakes\n", f.run("jobs --state paused -o name").out)
	})
}
