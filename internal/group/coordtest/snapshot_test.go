package coordtest

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSnapshot(t *testing.T) {
	type inner struct{ set map[string][]int }
	type outer struct {
		p *inner
		f func()
	}
	build := func() *outer {
		return &outer{p: &inner{set: map[string][]int{"a": {1}, "b": append(make([]int, 0, 4), 2)}}}
	}
	before := Snapshot(build())
	assert.Equal(t, before, Snapshot(build()), "of equal values")
	for name, change := range map[string]func(*outer){
		"an element behind a pointer":      func(o *outer) { o.p.set["a"][0] = 3 },
		"a new key":                        func(o *outer) { o.p.set["c"] = nil },
		"an element in the spare capacity": func(o *outer) { _ = append(o.p.set["b"], 3) },
		"a function":                       func(o *outer) { o.f = func() {} },
	} {
		o := build()
		change(o)
		assert.NotEqual(t, before, Snapshot(o), name)
	}
}
