package strategy

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A strategy may keep, sort or overwrite what it is given: the result is compared with the caller's own Input.
func TestRun_ComparesWithAnInputThatTheStrategyCannotChange(t *testing.T) {
	in := inputOf("pay", 2, "a", "b")
	in.Load, in.ShardParams = map[string]int{"id-00": 1}, map[int]string{0: "eu"}
	in.Members[0].Labels = map[string]string{"zone": "a"}
	_, err := Run(func(in Input) (Assignment, error) {
		in.Members[0].ID, in.Members[1].ID = "yyy", "zzz"
		in.Members[0].Labels["zone"], in.Load["id-00"], in.Owners[0], in.ShardParams[0] = "b", 7, "zzz", "us"
		return Assignment{"zzz", "zzz"}, nil
	}, in)
	assert.ErrorContains(t, err, `shard 0 is assigned to "zzz", which is not a candidate`)
	assert.Equal(t, map[string]int{"id-00": 1}, in.Load)
	assert.Equal(t, map[string]string{"zone": "a"}, in.Members[0].Labels)
	assert.Equal(t, []string{"", ""}, in.Owners)
	assert.Equal(t, map[int]string{0: "eu"}, in.ShardParams)
}

func TestRun_GoexitIsAnError(t *testing.T) {
	_, err := Run(func(Input) (Assignment, error) { runtime.Goexit(); return nil, nil }, inputOf("pay", 2, "a"))
	assert.ErrorContains(t, err, `run strategy of job "pay": function called runtime.Goexit`)
}

func TestKnownStrategies(t *testing.T) {
	builtIn := []string{"average", "odevity", "rotate", "single", "sticky"}
	t.Run("include the built-in and the custom ones", func(t *testing.T) {
		known, err := Known(nil)
		require.NoError(t, err)
		assert.Equal(t, builtIn, slices.Sorted(maps.Keys(known)))

		result := Assignment{"a"}
		known, err = Known(map[string]Func{"mine": func(Input) (Assignment, error) { return result, nil }})
		require.NoError(t, err)
		assert.ElementsMatch(t, append(builtIn, "mine"), slices.Collect(maps.Keys(known)))
		got, err := known["mine"](Input{})
		require.NoError(t, err)
		assert.Equal(t, result, got)
	})
	t.Run("do not share custom strategies between calls", func(t *testing.T) {
		_, err := Known(map[string]Func{"mine": Average})
		require.NoError(t, err)
		known, err := Known(nil)
		require.NoError(t, err)
		assert.NotContains(t, known, "mine")
	})
	for rule, custom := range map[string]map[string]Func{
		"a strategy has an empty name":                            {"": Average},
		`strategy "new" is nil`:                                   {"new": nil},
		`strategy "sticky" is built in, give yours another name`:  {"sticky": Average},
		`strategy "average" is built in, give yours another name`: {"average": Average},
	} {
		t.Run("are refused: "+rule, func(t *testing.T) {
			_, err := Known(custom)
			assert.EqualError(t, err, rule)
		})
	}
}

func TestRun_RefusesBadAssignments(t *testing.T) {
	in := inputOf("settle", 3, "x", "y") // their IDs are id-00 and id-01
	for rule, a := range map[string]Assignment{
		"owners for 2 shards, the job has 3":                        {"id-00", "id-01"},
		"owners for 4 shards, the job has 3":                        {"id-00", "id-01", "id-00", "id-01"},
		"owners for 0 shards, the job has 3":                        nil,
		"shard 1 has no owner":                                      {"id-00", "", "id-01"},
		`shard 2 is assigned to "id-02", which is not a candidate`:  {"id-00", "id-01", "id-02"},
		`shard 0 is assigned to "x", which is not a candidate`:      {"x", "y", "y"}, // a name is no ID
		`shard 0 is assigned to "id-00 ", which is not a candidate`: {"id-00 ", "id-01", "id-01"},
	} {
		t.Run(rule, func(t *testing.T) {
			got, err := Run(func(Input) (Assignment, error) { return a, nil }, in)
			require.EqualError(t, err, `refuse assignment of job "settle": `+rule)
			assert.Nil(t, got)
		})
	}
}

func TestRun_AcceptsAnyCompleteAssignment(t *testing.T) {
	in := inputOf("settle", 3, "x", "y")
	want := Assignment{"id-01", "id-01", "id-01"}
	got, err := Run(func(Input) (Assignment, error) { return want, nil }, in)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestRun_TurnsPanicsIntoErrors(t *testing.T) {
	for _, cause := range []any{"oops", errors.New("oops")} {
		got, err := Run(func(Input) (Assignment, error) { panic(cause) }, inputOf("settle", 3, "x"))
		require.EqualError(t, err, `run strategy of job "settle": panic: oops`)
		var p *PanicError
		require.ErrorAs(t, err, &p)
		require.Contains(t, string(p.Stack), "strategy_test.go", "the stack names the place")
		assert.Nil(t, got)
	}
}

func TestRun_WrapsTheError(t *testing.T) {
	cause := errors.New("no route")
	got, err := Run(func(Input) (Assignment, error) { return Assignment{"id-00"}, cause }, inputOf("settle", 1, "x"))
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, `run strategy of job "settle": no route`)
	assert.Nil(t, got)
}

func TestRun_RefusesBadInputs(t *testing.T) {
	never := func(Input) (Assignment, error) {
		t.Error("the strategy was called")
		return nil, nil
	}
	for rule, spoil := range map[string]func(*Input){
		"0 shards":              func(in *Input) { in.Shards, in.Owners = 0, nil },
		"-1 shards":             func(in *Input) { in.Shards = -1 },
		"no candidates":         func(in *Input) { in.Members = nil },
		"2 owners for 3 shards": func(in *Input) { in.Owners = in.Owners[:2] },
	} {
		in := inputOf("settle", 3, "x")
		spoil(&in)
		_, err := Run(never, in)
		require.EqualError(t, err, `run strategy of job "settle": `+rule)
	}
}

func TestRun_CopiesOwners(t *testing.T) {
	in := inputOf("settle", 3, "x")
	a, err := Run(func(in Input) (Assignment, error) {
		for i := range in.Owners {
			in.Owners[i] = "id-00"
		}
		return in.Owners, nil
	}, in)
	require.NoError(t, err)
	assert.Equal(t, Assignment{"id-00", "id-00", "id-00"}, a)
	assert.Equal(t, []string{"", "", ""}, in.Owners)
}

// Each built-in strategy returns a complete assignment, returns it again for the same input, and does
// not modify the input.
func TestStrategies_BuiltInArePureAndComplete(t *testing.T) {
	for _, name := range []string{"average", "odevity", "rotate", "single", "sticky"} {
		s := builtIn()[name]
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(200) {
				rng := rand.New(rand.NewPCG(seed, 0))
				names := []string{"a", "b", "c", "d", "e", "f", "g"}[:1+rng.IntN(7)]
				in := inputOf(fmt.Sprint("job", seed), 1+rng.IntN(20), names...)
				in.Load = map[string]int{}
				for _, m := range in.Members {
					in.Load[m.ID] = rng.IntN(5)
				}
				for shard := range in.Owners {
					if i := rng.IntN(len(in.Members) + 1); i < len(in.Members) {
						in.Owners[shard] = in.Members[i].ID
					}
				}
				before := in
				before.Members, before.Owners, before.Load = slices.Clone(in.Members), slices.Clone(in.Owners), maps.Clone(in.Load)

				first, err := s(in)
				require.NoError(t, err)
				require.NoError(t, checkAssignment(in, first))
				require.Equal(t, before, in, "seed %d", seed)
				second, err := s(in)
				require.NoError(t, err)
				require.Equal(t, first, second, "seed %d", seed)
			}
		})
	}
}
