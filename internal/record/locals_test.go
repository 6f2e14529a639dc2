package record

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// memberWith returns a member that offers jobs a, b, c with local parts.
func memberWith(name string, locals ...string) *Member {
	m := &Member{Name: name, Jobs: []string{"a", "b", "c"}}
	of := map[string]string{}
	for i, l := range locals {
		of[m.Jobs[i]] = l
	}
	m.SetLocals(of)
	return m
}

func TestMember_Locals(t *testing.T) {
	for want, locals := range map[string][]string{
		`null`:           nil,
		`[]`:             {},
		`["x"]`:          {"x", "", ""},
		`["","y"]`:       {"", "y"},
		`["x","","z"]`:   {"x", "", "z"},
		`["","","z"]`:    {"", "", "z"},
		`["x","y","zz"]`: {"x", "y", "zz"},
	} {
		m := memberWith("m", locals...)
		text, err := json.Marshal(m.Locals)
		require.NoError(t, err)
		if len(locals) == 0 {
			want = "null"
		}
		assert.Equal(t, want, string(text))
		for i, job := range m.Jobs {
			local := ""
			if i < len(locals) {
				local = locals[i]
			}
			assert.Equal(t, local, m.local(job))
		}
		assert.Empty(t, m.local("other"))
	}
	unset, err := json.Marshal(memberWith("m"))
	require.NoError(t, err)
	assert.NotContains(t, string(unset), "locals")

	m := Member{Jobs: []string{"a", "c"}, Unsupported: []string{"b"}}
	m.SetLocals(map[string]string{"a": "x", "b": "y", "withdrawn": "z"})
	assert.Equal(t, []string{"x", "", "y"}, m.Locals)
	assert.Empty(t, m.local("b"), "it is not offered")
}

func TestCompareLocals(t *testing.T) {
	for name, c := range map[string]struct {
		members []*Member
		want    map[string][]string
	}{
		"no member":            {nil, nil},
		"one member":           {[]*Member{memberWith("m1", "x")}, nil},
		"all alike":            {[]*Member{memberWith("m1", "x", "y"), memberWith("m2", "x", "y")}, nil},
		"no local parts":       {[]*Member{memberWith("m1"), memberWith("m2")}, nil},
		"one has none":         {[]*Member{memberWith("m1", "x"), memberWith("m2"), memberWith("m3", "", "y")}, nil},
		"one differs":          {[]*Member{memberWith("m3", "z"), memberWith("m1", "x"), memberWith("m2", "x")}, map[string][]string{"a": {"m3"}}},
		"two of five differ":   {[]*Member{memberWith("m5", "z"), memberWith("m1", "x"), memberWith("m2", "x"), memberWith("m3", "x"), memberWith("m4", "y")}, map[string][]string{"a": {"m4", "m5"}}},
		"none is the usual":    {[]*Member{memberWith("m2", "x"), memberWith("m1", "y")}, map[string][]string{"a": {"m1", "m2"}}},
		"those without do not": {[]*Member{memberWith("m1", "x", "y"), memberWith("m2", "", "y"), memberWith("m3", "", "y"), memberWith("m4", "z", "y")}, map[string][]string{"a": {"m1", "m4"}}},
		"each job by itself":   {[]*Member{memberWith("m1", "x", "y", "1"), memberWith("m2", "x", "y", "2"), memberWith("m3", "x", "z", "2")}, map[string][]string{"b": {"m3"}, "c": {"m1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := CompareLocals(c.members)
			if c.want == nil {
				assert.Empty(t, got)
			} else {
				assert.Equal(t, c.want, got)
			}
			for _, job := range []string{"a", "b", "c", "other"} {
				assert.Equal(t, c.want[job], CompareLocal(c.members, job), job)
			}
		})
	}
	other := &Member{Name: "m3", Jobs: []string{"b", "x"}, Locals: []string{"y", "z"}}
	assert.Empty(t, CompareLocals([]*Member{memberWith("m1", "x", "y"), memberWith("m2", "x", "y"), other}), "another list of jobs")
}

func BenchmarkCompareLocals(b *testing.B) {
	var members []*Member
	for n := range 50 {
		m := &Member{Name: fmt.Sprint("web-", n)}
		for job := range 10_000 {
			m.Jobs = append(m.Jobs, fmt.Sprintf("job-%05d", job))
			m.Locals = append(m.Locals, fmt.Sprintf("%08x", job))
		}
		members = append(members, m)
	}
	for name, last := range map[string]string{"alike": members[0].Locals[9_999], "different": "00000000"} {
		b.Run(name, func(b *testing.B) {
			members[49].Locals[9_999] = last
			for b.Loop() {
				CompareLocals(members)
			}
		})
	}
}
