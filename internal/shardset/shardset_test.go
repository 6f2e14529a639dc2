package shardset

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// twin is a trivial implementation of a Set, to compare with.
type twin [64]bool

func (w twin) numbers() []int {
	var ns []int
	for n, in := range w {
		if in {
			ns = append(ns, n)
		}
	}
	return ns
}

// combine returns the twin of the numbers for which keep returns true.
func combine(a, b twin, keep func(inA, inB bool) bool) twin {
	var w twin
	for n := range w {
		w[n] = keep(a[n], b[n])
	}
	return w
}

// requireSame compares s with its twin by every method that reads.
func requireSame(t *testing.T, want twin, s Set) {
	t.Helper()
	ns := want.numbers()
	require.Equal(t, ns, slices.Collect(s.All()))
	require.Equal(t, len(ns), s.Len())
	require.Equal(t, len(ns) == 0, s.IsZero())
	for n, in := range want {
		if s.Has(n) != in {
			t.Fatalf("Has(%d) of %v is %v", n, s, !in)
		}
	}
	require.False(t, s.Has(-1))
	require.False(t, s.Has(len(want)))

	lo, okMin := s.Min()
	hi, okMax := s.Max()
	require.Equal(t, len(ns) > 0, okMin)
	require.Equal(t, len(ns) > 0, okMax)
	if len(ns) > 0 {
		require.Equal(t, []int{ns[0], ns[len(ns)-1]}, []int{lo, hi})
	}

	end := -1
	var spread []int
	for lo, hi := range s.Ranges() {
		require.Greater(t, lo, end, "ranges of %v are sorted and never touch", s)
		require.Greater(t, hi, lo)
		end = hi
		for n := lo; n < hi; n++ {
			spread = append(spread, n)
		}
	}
	require.Equal(t, ns, spread)

	require.Equal(t, Of(ns...), s, "one representation")
	require.True(t, s.Equal(Of(ns...)))
	back, err := Parse(s.String())
	require.NoError(t, err)
	require.Equal(t, s, back)
}

// randomSet returns a Set of random density, built by Add and Remove, and its twin.
func randomSet(rng *rand.Rand) (Set, twin) {
	var s Set
	var w twin
	add := rng.Float64()
	for range rng.IntN(200) {
		n := rng.IntN(len(w))
		if rng.Float64() < add {
			s.Add(n)
			w[n] = true
		} else {
			s.Remove(n)
			w[n] = false
		}
	}
	return s, w
}

func TestSet_AgreesWithItsTwin(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 0))
		a, wa := randomSet(rng)
		b, wb := randomSet(rng)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			requireSame(t, wa, a)
			requireSame(t, wb, b)
			requireSame(t, combine(wa, wb, func(x, y bool) bool { return x || y }), a.Union(b))
			requireSame(t, combine(wa, wb, func(x, y bool) bool { return x && !y }), a.Minus(b))
			requireSame(t, combine(wa, wb, func(x, y bool) bool { return x && y }), a.Intersect(b))
			require.Equal(t, wa == wb, a.Equal(b))
			// None of these methods may have changed its operands.
			requireSame(t, wa, a)
			requireSame(t, wb, b)
		})
	}
}

func TestSet_ResultsShareNothingWithOperands(t *testing.T) {
	results := map[string]func(a, b Set) Set{
		"Clone":     func(a, _ Set) Set { return a.Clone() },
		"Union":     Set.Union,
		"Minus":     Set.Minus,
		"Intersect": Set.Intersect,
	}
	for name, result := range results {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(300) {
				rng := rand.New(rand.NewPCG(seed, 1))
				a, wa := randomSet(rng)
				b, wb := randomSet(rng)
				if seed%3 == 0 {
					b, wb = Set{}, twin{} // a shortcut could return the other operand itself
				}
				r := result(a, b)
				for range 50 {
					r.Add(rng.IntN(64))
					r.Remove(rng.IntN(64))
				}
				requireSame(t, wa, a)
				requireSame(t, wb, b)
			}
		})
	}
}

func TestSet_IsTheZeroSetAfterRemovingAll(t *testing.T) {
	s := Of(3, 4)
	s.Remove(3)
	s.Remove(4)
	s.Remove(4)
	assert.Equal(t, Set{}, s)
	assert.True(t, s.IsZero())
}

func TestSet_LoopsEndEarly(t *testing.T) {
	s := Of(1, 2, 5, 9)
	for n := range s.All() {
		if n == 2 {
			break
		}
		assert.Equal(t, 1, n)
	}
	for lo, hi := range s.Ranges() {
		assert.Equal(t, []int{1, 3}, []int{lo, hi})
		break
	}
}

func TestRange(t *testing.T) {
	assert.Equal(t, Of(2, 3, 4), Range(2, 5))
	assert.Equal(t, Set{}, Range(5, 5))
	assert.Equal(t, Set{}, Range(5, 2))
	assert.Equal(t, Limit+1, Range(0, Limit+1).Len())
}

func TestSet_RefusesNumbersThatCannotBeParsed(t *testing.T) {
	for _, n := range []int{-1, Limit + 1} {
		var s Set
		assert.Panics(t, func() { s.Add(n) })
		assert.Panics(t, func() { Of(1, n) })
		assert.Panics(t, func() { Range(n, n+1) })
		assert.Equal(t, Set{}, s)
	}
	assert.Panics(t, func() { Range(-3, 4) })
	assert.Panics(t, func() { Range(4, Limit+2) })

	edges := Of(0, Limit)
	back, err := Parse(edges.String())
	require.NoError(t, err)
	assert.Equal(t, edges, back)
}

func TestText_WritesRanges(t *testing.T) {
	for text, numbers := range map[string][]int{
		"":            nil,
		"0":           {0},
		"7":           {7},
		"0-1":         {0, 1},
		"0-3,7":       {7, 3, 2, 1, 0, 0},
		"1,3,5-7,100": {100, 5, 6, 7, 3, 1},
	} {
		s := Of(numbers...)
		assert.Equal(t, text, s.String())
		written, err := s.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, text, string(written))
		appended, err := s.AppendText([]byte("shards="))
		require.NoError(t, err)
		assert.Equal(t, "shards="+text, string(appended))
	}
}

func TestText_RefusalNamesTheRule(t *testing.T) {
	for text, rule := range map[string]string{
		"7,0-3":                   `"0-3": unsorted`,
		"5,4":                     `"4": unsorted`,
		"4,0-3":                   `"0-3": unsorted`,
		"3-2":                     `"3-2": unsorted`,
		"3,3":                     `"3": overlapping: repeats 3`,
		"0-3,2-5":                 `"2-5": overlapping: repeats 2`,
		"2-5,0-9":                 `"0-9": overlapping: repeats 2`,
		"0-3,4":                   `"4": adjacent`,
		"0,1":                     `"1": adjacent`,
		"3-3":                     `"3-3": range of one`,
		"-1":                      `"-1": negative`,
		"-":                       `"-": negative`,
		"2--1":                    `"2--1": negative`,
		"1048577":                 `"1048577": over 1048576`,
		"0-1048577":               `"0-1048577": over 1048576`,
		"99999999999999999999999": `: over 1048576`,
		"01":                      `"01": leading zero`,
		"0-07":                    `"0-07": leading zero`,
		",":                       `"": empty`,
		"1,":                      `"": empty`,
		",1":                      `"": empty`,
		"1-":                      `"1-": empty`,
		"1-2-3":                   `"1-2-3": not a digit: '-'`,
		"+1":                      `"+1": not a digit: '+'`,
		" 1":                      `" 1": not a digit: ' '`,
		"1, 3":                    `" 3": not a digit: ' '`,
		"ä":                       `"ä": not a digit: 'ä'`,
	} {
		t.Run(text, func(t *testing.T) {
			s := Of(5)
			err := s.UnmarshalText([]byte(text))
			require.ErrorContains(t, err, "parse shards: ")
			require.ErrorContains(t, err, rule)
			assert.Equal(t, Of(5), s, "unchanged")
		})
	}
}

func TestJSON_RoundTrip(t *testing.T) {
	type record struct {
		Frozen  Set            `json:"frozen"`
		Running Set            `json:"running,omitzero"`
		ByOwner map[string]Set `json:"byOwner"`
	}
	in := record{Frozen: Of(1, 2, 9), ByOwner: map[string]Set{"a": Range(0, 4), "b": {}}}
	text, err := json.Marshal(in)
	require.NoError(t, err)
	assert.JSONEq(t, `{"frozen":"1-2,9","byOwner":{"a":"0-3","b":""}}`, string(text))
	var out record
	require.NoError(t, json.Unmarshal(text, &out))
	assert.Equal(t, in, out)
}

// FuzzParse checks that an accepted text is equal to the text form of its Set, and that the
// Set obeys the rules of its representation.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "0", "0-3,7", "7,0-3", "0-3,4", "1048576", "0-1048576", "1048577", "3-3", "00", "-1", "1,,2", "0-3,2-5"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			require.Equal(t, Set{}, s)
			return
		}
		require.Equal(t, text, s.String())
		end := -1
		for lo, hi := range s.Ranges() {
			require.Greater(t, lo, end)
			require.Greater(t, hi, lo)
			require.LessOrEqual(t, hi, Limit+1)
			end = hi
		}
	})
}

// FuzzAlgebra applies operations to Sets and twins: the top two bits of each byte are the
// operation, the others the number.
func FuzzAlgebra(f *testing.F) {
	f.Add([]byte{0, 1, 2, 0x42, 0x81, 0xc0})
	f.Add([]byte{5, 6, 7, 0x46, 0x80, 0xc6, 0x07})
	f.Fuzz(func(t *testing.T, steps []byte) {
		var a, b Set
		var wa, wb twin
		for _, step := range steps {
			n := int(step & 63)
			switch step >> 6 {
			case 0:
				a.Add(n)
				wa[n] = true
			case 1:
				a.Remove(n)
				wa[n] = false
			case 2:
				b.Add(n)
				wb[n] = true
			default:
				a, b, wa, wb = b.Clone(), a.Minus(b), wb, combine(wa, wb, func(x, y bool) bool { return x && !y })
			}
		}
		requireSame(t, wa, a)
		requireSame(t, wb, b)
		requireSame(t, combine(wa, wb, func(x, y bool) bool { return x || y }), a.Union(b))
		requireSame(t, combine(wa, wb, func(x, y bool) bool { return x && y }), a.Intersect(b))
	})
}

func BenchmarkSet_AddTenThousand(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var s Set
		for n := range 10_000 {
			s.Add(n)
		}
	}
}

func BenchmarkSet_ParseTenThousand(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("0-9999"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSet_Text(t *testing.T) {
	assert.Equal(t, "shard 7", Of(7).Text())
	assert.Equal(t, "shards 0-3,7", Range(0, 4).Union(Of(7)).Text())
}
