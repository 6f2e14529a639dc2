package acts

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/operator"
)

func TestVerb_Parse(t *testing.T) {
	at := func(text string) time.Time {
		t.Helper()
		parsed, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return parsed
	}
	for _, c := range []struct {
		name, form string
		want       Request
	}{
		{"trigger", "shards=3,+7-9&param=+x+&reason=why", Request{Shards: []int{3, 7, 8, 9}, Param: pointer(" x ")}},
		{"trigger", "shards=&param=+&job=other&again=yes", Request{}},
		{"retry", "fire=1999-12-31T03:00:00Z&total=8&again=on", Request{Fire: at("1999-12-31T03:00:00Z"), Total: 8, Again: true}},
		{"retry", "fire=1999-12-31T03:00", Request{Fire: at("1999-12-31T03:00:00+08:00")}},
		{"retry", "fire=1999-12-31T03:00:07", Request{Fire: at("1999-12-31T03:00:07+08:00")}},
		{"retry", "fire=07:59", Request{Fire: at("2000-01-01T07:59:00+08:00")}},
		{"retry", "fire=08:01", Request{Fire: at("1999-12-31T08:01:00+08:00")}},
		{"pause", "until=2h30m", Request{Until: at("2000-01-01T02:30:00Z")}},
		{"pause", "until=08:01", Request{Until: at("2000-01-01T08:01:00+08:00")}},
		{"pause", "until=07:59&schedule_only=", Request{Until: at("2000-01-02T07:59:00+08:00")}},
		{"disable", "instances=a,+b&instances=c%0D%0Ad&hosts=", Request{Instances: []string{"a", "b", "c", "d"}}},
		{"override", "fields=timeout%3D2h%0D%0A%0D%0Ashard_params.3%3Da%3Db&fields.shards=4&fields.param=two%0Alines&fields.retry=max%3D3%0Ainitial%3D1s", Request{Fields: map[string]any{
			"timeout": "2h", "shard_params": map[string]any{"3": "a=b"}, "shards": json.Number("4"), "param": "two\nlines",
			"retry": map[string]any{"max": json.Number("3"), "initial": "1s"},
		}}},
		{"override", "fields=on_crash%3D", Request{Fields: map[string]any{"on_crash": nil}}},
		{"define", "kind=report&fields.schedule=every+1h&fields.retry=max%3D3%0Ajitter%3D0.5&fields.timeout=&if_revision=2&keep_params=yes&in=+", Request{
			Kind: "report", IfRevision: 2, KeepParams: true,
			Fields: map[string]any{"schedule": "every 1h", "retry": map[string]any{"max": json.Number("3"), "jitter": json.Number("0.5")}},
		}},
		{"delete", "cancel_runs=yes", Request{CancelRuns: true}},
		{"set-pool", "pool=db&size=0", Request{Pool: "db", Size: new(0)}},
		{"override", "clear=timeout,shards&clear_all=", Request{Clear: []string{"timeout", "shards"}}},
	} {
		t.Run(c.name+" "+c.form, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				form, err := url.ParseQuery(c.form)
				require.NoError(t, err)
				v, ok := Find(c.name, OnJob)
				if !ok {
					v, _ = Find(c.name, OnGroup)
				}
				r, err := v.Parse(form, time.FixedZone("here", 8*3600))
				require.NoError(t, err)
				for _, instant := range []*time.Time{&r.Fire, &r.Until, &c.want.Fire, &c.want.Until} {
					*instant = instant.UTC()
				}
				assert.Equal(t, c.want, r)
			})
		})
	}
}

func TestVerb_Parse_NamesFieldAndRule(t *testing.T) {
	for _, c := range []struct{ name, form, want string }{
		{"trigger", "shards=9-7", `shards: the range "9-7" ends before it begins`},
		{"trigger", "param=a&param=b", "param: it is given twice"},
		{"retry", "fire=noon", `fire: it is "noon", neither RFC 3339 nor a time of day as 14:00, nor a date as 2006-01-02 with or without one`},
		{"retry", "total=0", `total: "0" is not a whole number from 1 on`},
		{"pause", "until=-2h", `until: it is "-2h", neither RFC 3339`},
		{"override", "fields=secret", "fields: a line is not KEY=VALUE"},
		{"override", "fields=%3Dsecret", "fields: a line is not KEY=VALUE"},
		{"override", "fields.max_attempts=many", `fields: max_attempts is "many", not a number`},
	} {
		form, err := url.ParseQuery(c.form)
		require.NoError(t, err)
		v, _ := Find(c.name, OnJob)
		_, err = v.Parse(form, nil)
		require.ErrorContains(t, err, c.want, c.form)
		require.ErrorIs(t, err, operator.ErrInvalidArgument, c.form)
		assert.NotContains(t, err.Error(), "secret")
	}
}

func TestVerb_Check(t *testing.T) {
	for _, c := range []struct {
		name string
		on   Target
		r    Request
		want string
	}{
		{"trigger", OnJob, Request{}, "job: it is missing"},
		{"trigger", OnJob, Request{Job: "settle", Until: epoch}, "until: trigger of a job has no such argument"},
		{"cancel", OnJob, Request{Job: "settle", Shards: []int{}}, "shards: the list is empty"},
		{"retry", OnJob, Request{Job: "settle"}, "fire: it is missing"},
		{"retry", OnJob, Request{Job: "settle", Fire: epoch, Total: -1}, "total: it is below 1"},
		{"override", OnJob, Request{Job: "settle"}, "fields: name fields to replace, or fields to clear"},
		{"override", OnJob, Request{Job: "settle", Fields: map[string]any{}, Clear: []string{"shards"}, ClearAll: true}, "exclude each other"},
		{"override", OnJob, Request{Job: "settle", Fields: map[string]any{"shards": 0}}, "fields: shards: 0 is not from 1 on"},
		{"override", OnJob, Request{Job: "settle", Fields: map[string]any{"param": []int{1}}}, "fields: param: the value has another type"},
		{"override", OnJob, Request{Job: "settle", Fields: map[string]any{"schedule": "0 4 * * *"}}, "write schedule='cron 0 4 * * *'"},
		{"override", OnJob, Request{Job: "settle", Fields: map[string]any{"timeout": "0s"}}, "timeout is 0s, below 1ms"},
		{"override", OnJob, Request{Job: "settle", Fields: map[string]any{"misfire": "x"}}, "is it on_misfire?"},
		{"define", OnJob, report(Request{}, "schedule", nil), "fields.schedule: it is missing"},
		{"define", OnJob, report(Request{}, "schedule", "0 4 * * *"), "fields.schedule: schedule is \"0 4 * * *\", without its kind"},
		{"define", OnJob, report(Request{}, "misfire", "x"), "fields: there is no field \"misfire\"; is it on_misfire?"},
		{"define", OnJob, report(Request{In: "Asia/Shanghai"}), "in: schedule \"every 2h in Asia/Shanghai\": only a cron schedule"},
		{"define", OnJob, report(Request{DeleteAfter: "soon"}), "delete_after: it is neither a duration nor never"},
		{"define", OnJob, report(Request{DeleteAfter: "0s"}), "delete_after: it is not above 0"},
		{"define", OnJob, report(Request{IfAbsent: true, IfRevision: 1}), "if_absent: it excludes if_revision and keep_params"},
		{"define", OnJob, Request{Job: "acme/report"}, "kind: it is missing"},
		{"set-pool", OnGroup, Request{Pool: "db"}, "size: it is missing"},
		{"set-pool", OnGroup, Request{Pool: "db", Size: new(-1)}, "size: -1 is not between 0 and 10000"},
		{"set-pool", OnGroup, Request{Pool: "a/b", Size: new(1)}, "pool: "},
		{"delete-pool", OnGroup, Request{}, "pool: it is missing"},
		{"pause", OnGroup, Request{Job: "settle"}, "job: pause of a group has no such argument"},
		{"undrain", OnInstance, Request{}, "instance: it is missing"},
	} {
		v, ok := Find(c.name, c.on)
		require.True(t, ok)
		err := v.Check(c.r)
		require.ErrorContains(t, err, c.want)
		require.ErrorIs(t, err, operator.ErrInvalidArgument)
	}
	_, ok := Find("drain", OnJob)
	assert.False(t, ok)
}

func TestVerbs_CanBeDrawn(t *testing.T) {
	declared := slices.Collect(maps.Keys(maps.Collect(fieldsOf(&Request{}))))
	check := func(of string, f *Field) {
		assert.NotEmpty(t, f.Label, "%s %s", of, f.Name)
		assert.Equal(t, f.Kind == Choice, len(f.Choices) > 0, "%s %s", of, f.Name)
		assert.Equal(t, f.Kind != Switch && strings.Contains(f.Name, "param") || f.Name == "fields", f.Secret, "%s %s", of, f.Name)
	}
	seen := map[string]bool{}
	for i := range Verbs {
		v := &Verbs[i]
		name := v.Name + " " + string(v.On)
		assert.False(t, seen[name], name)
		seen[name] = true
		assert.NotEmpty(t, v.Short, name)
		for j := range v.Fields {
			f := &v.Fields[j]
			assert.Contains(t, declared, f.Name, name)
			check(name, f)
			for k := range f.Keys {
				check(name, &f.Keys[k])
			}
		}
		if v.Confirm != nil {
			assert.Contains(t, v.Confirm(v.For("settle")), map[Target]string{OnJob: "settle", OnGroup: "group", OnInstance: "settle"}[v.On])
		}
	}
	v, _ := Find("drain", OnInstance)
	assert.Equal(t, Request{Instance: "a"}, v.For("a"))
	v, _ = Find("cancel", OnJob)
	assert.Equal(t, "cancel the runs of settle in shards 1-2", v.Confirm(Request{Job: "settle", Shards: []int{1, 2}}))
	v, _ = Find("delete", OnJob)
	assert.Contains(t, v.Confirm(Request{Job: "settle"}), "Runs in progress finish")
	assert.Contains(t, v.Confirm(Request{Job: "settle", CancelRuns: true}), "Runs in progress are cancelled")
}

// Each value that a form offers for a field of an override is one that the operator accepts.
func TestOverride_AcceptsItsChoices(t *testing.T) {
	values := map[string][]string{
		"schedule": {"cron 0 4 * * * in Asia/Shanghai"}, "shards": {"8"}, "param": {"x"}, "shard_params": {"1=x"}, "description": {"d"}, "strategy": {"balanced"},
		"timeout": {"90s"}, "on_misfire": {"run once", "skip missed", "run all 100"}, "max_attempts": {"2"}, "catchup_window": {"1h"},
		"retry": {"max=3\ninitial=1s\nfactor=2\nmax_interval=1m"}, "run_on": {"zone=x"}, "pool": {"db"},
	}
	onFleet(t, func(k *kit) {
		v, _ := Find("override", OnJob)
		for i := range overrideKeys {
			key := &overrideKeys[i]
			all := slices.Concat(values[key.Name], key.Choices)
			require.NotEmpty(k, all, key.Name)
			for _, value := range all {
				r, err := v.Parse(url.Values{"fields." + key.Name: {value}}, nil)
				require.NoError(k, err)
				r.Job = "settle"
				d, err := v.Do(k.Context(), k.op, r)
				if assert.NoError(k, err, "%s=%s", key.Name, value) {
					assert.Equal(k, "overrides "+key.Name+" of settle", d.Text)
				}
				k.did("override", OnJob, Request{Job: "settle", ClearAll: true})
			}
		}
	})
}
