package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sample has a statement of each kind that is mutated.
const sample = `package sample

import "time"

const parts, near = 1 << 30, 5

var double = func(n int) int { return 2 * n }

type counter[T any] struct{}

func (c *counter[T]) count(list []int, most int) (n int, err error) {
	for i, x := range list {
		if i < most && x > 0 {
			n++
			continue
		}
		defer close(make(chan int))
		n = n - x/2
	}
	f := func() { n += 1 }
	f()
	switch {
	case n == most || most == 7:
		return n, nil
	}
	return 0, nil
}

func pair(s string, d time.Duration) (string, bool) {
	if d > 2*time.Second {
		return pair("x"+s, d)
	}
	zero := 0
	_, ok := map[int]int{1: zero}[len(s)]
	return "", !ok
}

func fails(n int64) bool { return n >= parts-near }
`

func TestMutateFile(t *testing.T) {
	consts := map[string]bool{}
	require.NoError(t, constNames([]byte(sample), consts))
	m, err := mutateFile("sample.go", []byte(sample), consts, 5)
	require.NoError(t, err)
	require.Equal(t, "sample", m.pkg)
	var all []string
	for i, x := range m.mutants {
		assert.Equal(t, 5+i, x.number)
		all = append(all, x.String())
	}
	assert.Equal(t, []string{
		"sample.go double: return zero values instead of return 2 * n",
		"sample.go double: the first operand only of * in 2 * n",
		"sample.go counter.count: no iteration over list",
		"sample.go counter.count: reverse i < most && x > 0",
		"sample.go counter.count: leave out of a condition i < most",
		"sample.go counter.count: leave out of a condition x > 0",
		"sample.go counter.count: <= instead of < in i < most",
		"sample.go counter.count: >= instead of > in x > 0",
		"sample.go counter.count: omit n++",
		"sample.go counter.count: omit continue",
		"sample.go counter.count: omit defer close(make(chan int))",
		"sample.go counter.count: omit n = n - x/2",
		"sample.go counter.count: + instead of - in n - x/2",
		"sample.go counter.count: * instead of / in x/2",
		"sample.go counter.count: zero values after f := func() { n += 1 }",
		"sample.go counter.count: return at once",
		"sample.go counter.count: omit n += 1",
		"sample.go counter.count: omit f()",
		"sample.go counter.count: reverse n == most || most == 7",
		"sample.go counter.count: leave out of a condition n == most",
		"sample.go counter.count: leave out of a condition most == 7",
		"sample.go counter.count: return zero values instead of return n, nil",
		"sample.go pair: reverse d > 2*time.Second",
		"sample.go pair: >= instead of > in d > 2*time.Second",
		`sample.go pair: return zero values instead of return pair("x"+s, d)`,
		`sample.go pair: the first operand only of + in "x"+s`,
		"sample.go pair: zero values after _, ok := map[int]int{1: zero}[len(s)]",
		"sample.go pair: return the reverse of !ok",
		"sample.go fails: return the reverse of n >= parts-near",
		"sample.go fails: > instead of >= in n >= parts-near",
	}, all)
	for _, piece := range []string{
		"if mutantReversed(8, (mutantOn(9) || (mutantLess(11, i , most))) && (mutantOn(10) || (mutantGreater(12, x , 0)))) {",
		"if !mutantOn(16) { n = mutantMinus(17, n , mutantDivide(18, x,2)) }",
		"f := func() { if mutantOn(20) { return }; if !mutantOn(21) { n += 1 } }; if mutantOn(19) { mutantZero(&f) }",
		"if mutantOn(29) { var zero0 string; var zero1 bool; return zero0, zero1 };return pair(mutantPlus(30, \"x\",s), d)",
	} {
		assert.Contains(t, string(m.source), piece)
	}
}

// tempModule changes to a new module with files.
func tempModule(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	writeFiles(t, map[string]string{"go.mod": "module sample\n\ngo 1.26\n"})
	writeFiles(t, files)
}

func writeFiles(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
}

var sampleTarget = target{name: "sample", dir: ".", steps: unitTests("")}

func sampleOptions() options { return options{named: ".", cpu: time.Second, workers: 2} }

func TestMutateTarget_BuildsAllFaultsAtOnce(t *testing.T) {
	tempModule(t, map[string]string{"sample.go": sample, "sample_test.go": "package sample\n"})
	var out bytes.Buffer
	ok, err := mutateTarget(t.Context(), sampleOptions(), sampleTarget, &out)
	require.NoError(t, err)
	require.False(t, ok)
	assert.Equal(t, 30, strings.Count(out.String(), "is not run "), out.String())
}

func TestMutateTarget_ComparesSurvivorsWithTheNamed(t *testing.T) {
	tempModule(t, map[string]string{
		"sample.go": `package sample

func Max(a, b int) int {
	if a < b {
		a = b
	}
	return a
}

func Sum(n int) (sum int) {
	for n > 0 {
		sum += n
		n--
	}
	return sum
}

func unused() { unused() }
`,
		"sample_test.go": `package sample

import "testing"

func TestMax(t *testing.T) {
	t.Run("of two", func(t *testing.T) {
		if Max(2, 3) != 3 || Max(3, 2) != 3 {
			t.Fail()
		}
	})
}

func TestSum(t *testing.T) {
	if Sum(3) != 6 {
		t.Fail()
	}
}
`,
		"sample.txt": `# a comment
equal numbers are interchangeable:
	sample.go Max: <= instead of < in a < b
0 adds nothing:
	sample.go Sum: >= instead of > in n > 0

no test needs it:
	sample.go unused: return at once
	sample.go unused: omit unused()
`,
	})
	o := sampleOptions()
	o.verbose = true
	var out bytes.Buffer
	ok, err := mutateTarget(t.Context(), o, sampleTarget, &out)
	require.NoError(t, err)
	assert.True(t, ok, out.String())
	assert.Contains(t, out.String(), "sample: 11 faults, 7 noticed (63.6 %), 4 survivors with a name, 0 without;")
	assert.Regexp(t, `TestMax/of_two +sample.go Max: reverse a < b\n`, out.String())
	assert.Regexp(t, `no progress +sample.go Sum: omit n--\n`, out.String())

	writeFiles(t, map[string]string{"sample.txt": "no test needs it:\n\tsample.go unused: omit unused()\n\tsample.go other: omit x\n"})
	o.verbose = false
	out.Reset()
	ok, err = mutateTarget(t.Context(), o, sampleTarget, &out)
	require.NoError(t, err)
	assert.False(t, ok)
	for _, line := range []string{
		"survives sample.go Max: <= instead of < in a < b\n",
		"survives sample.go Sum: >= instead of > in n > 0\n",
		"is not run sample.go unused: return at once\n",
		"no survivor sample.go other: omit x\n",
		"sample: 11 faults, 7 noticed (63.6 %), 1 survivors with a name, 3 without;",
	} {
		assert.Contains(t, strings.Join(strings.Fields(out.String()), " "), strings.Join(strings.Fields(line), " "))
	}
}

func TestMutateTarget_RepeatsTheSurvivorsOfAnEarlierRun(t *testing.T) {
	tempModule(t, map[string]string{"sample.go": sample, "sample_test.go": "package sample\n"})
	o := sampleOptions()
	var earlier, out bytes.Buffer
	_, err := mutateTarget(t.Context(), o, sampleTarget, &earlier)
	require.NoError(t, err)
	lines := strings.SplitAfter(earlier.String(), "\n")
	writeFiles(t, map[string]string{"earlier.txt": lines[0] + lines[2]})
	o.again = "earlier.txt"
	_, err = mutateTarget(t.Context(), o, sampleTarget, &out)
	require.NoError(t, err)
	assert.Contains(t, out.String(), lines[0]+lines[2]+"sample: 2 faults, 0 noticed")

	writeFiles(t, map[string]string{"earlier.txt": "sample: 2 faults\n"})
	_, err = mutateTarget(t.Context(), o, sampleTarget, &out)
	require.ErrorContains(t, err, "earlier.txt lists no survivor of these faults")
}

func TestMutateTarget_FailsIfTheTestsFailWithoutAFault(t *testing.T) {
	tempModule(t, map[string]string{
		"sample.go":      "package sample\n\nfunc f() { f() }\n",
		"sample_test.go": "package sample\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { t.Fail() }\n",
	})
	_, err := mutateTarget(t.Context(), sampleOptions(), sampleTarget, &bytes.Buffer{})
	require.ErrorContains(t, err, "the tests of . fail without a fault")
}

func TestRun_FailsIfThereIsNoSuchTarget(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), options{}, []string{"other"}, &bytes.Buffer{}), `no target "other"`)
}

func TestTargets_ArePackagesOfTheModule(t *testing.T) {
	for _, x := range targets {
		files, err := filepath.Glob(filepath.Join("../../..", x.dir, "*_test.go"))
		require.NoError(t, err)
		assert.NotEmpty(t, files, "%s: no tests in %s", x.name, x.dir)
	}
}

func TestReadNames_RejectsOtherLines(t *testing.T) {
	t.Chdir(t.TempDir())
	for text, want := range map[string]string{
		"# a comment\nno colon\n":                      "sample.txt:2: neither a reason with a colon nor an indented fault",
		"\ta fault without a reason\n":                 "sample.txt:1: ",
		"a reason:\n\ta.go f: omit x\n\n\tno reason\n": "sample.txt:4: ",
	} {
		writeFiles(t, map[string]string{"sample.txt": text})
		_, err := readNames(".", "sample")
		require.ErrorContains(t, err, want)
	}
}
