package record

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestSlots_AreRefused(t *testing.T) {
	keys, err := NewKeys("test", "default")
	require.NoError(t, err)
	decode := func(value string) error {
		_, err := DecodeSlotsEntry(registry.Entry{Key: keys.Slots("db"), Value: []byte(value)})
		return err
	}
	require.NoError(t, decode(`{"pool":"db","deal":7,"contended":true,"grants":{"a.s":{"slots":3,"deal":7,"keep":1}},"novelty":1}`))
	for value, rule := range map[string]string{
		`[]`:           "cannot unmarshal",
		`{"pool":"x"}`: `record of pool "x" at `,
		`{"pool":"db","deal":3000000000000000000}`:                              "deal 3000000000000000000, at most",
		`{"pool":"db","deal":7,"grants":{"a":{"slots":3,"deal":7}}}`:            "is not the name of an instance",
		`{"pool":"db","deal":7,"grants":{"a.s":{"slots":3,"deal":8}}}`:          "by deal 8 of 7",
		`{"pool":"db","deal":7,"grants":{"a.s":{"slots":3}}}`:                   "by deal 0",
		`{"pool":"db","deal":7,"grants":{"a.s":{"slots":-1,"deal":7}}}`:         "-1 slots",
		`{"pool":"db","deal":7,"grants":{"a.s":{"slots":10001,"deal":7}}}`:      "10001 slots",
		`{"pool":"db","deal":7,"grants":{"a.s":{"slots":1,"deal":7,"keep":2}}}`: "of which to keep 2",
	} {
		assert.ErrorContains(t, decode(value), rule, value)
	}
}

func TestDemand_IsRefused(t *testing.T) {
	keys, err := NewKeys("test", "default")
	require.NoError(t, err)
	decode := func(inc, value string) error {
		_, err := keys.DecodeDemandEntry(registry.Entry{Key: keys.Demand("a.s"), Owner: "s", Value: fmt.Appendf(nil, `{"incarnation":%q,"pools":%s}`, inc, value)})
		return err
	}
	require.NoError(t, decode("a.s", `{"db":{"want":3,"cap":1,"deal":7}}`))
	assert.ErrorContains(t, decode("b.s", `{}`), `demand of incarnation "b.s" at `)
	assert.ErrorContains(t, decode("a", `{}`), "is not the name of an instance")
	assert.ErrorContains(t, decode("a.s", `{"a/b":{}}`), "pools: ")
	assert.ErrorContains(t, decode("a.s", `{"db":{"want":-1}}`), "wants -1")
	assert.ErrorContains(t, decode("a.s", `{"db":{"cap":10001}}`), "uses up to 10001")
	assert.ErrorContains(t, decode("a.s", `{"db":{"deal":2000000000000000000}}`), "deal 2000000000000000000, at most")
}

func TestGroupControl_Pools(t *testing.T) {
	c, err := DecodeGroupControl([]byte(`{"pools":{"db":8,"licence":0},"later":1}`))
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"db": 8, "licence": 0}, c.Pools)
	b, err := Encode(c)
	require.NoError(t, err)
	assert.Equal(t, `{"pools":{"db":8,"licence":0},"later":1}`, string(b))
	for value, rule := range map[string]string{
		`{"pools":{"db":-1}}`:    `"db": size is -1`,
		`{"pools":{"db":10001}}`: `"db": size is 10001`,
		`{"pools":{"a/b":1}}`:    "has a slash",
	} {
		_, err := DecodeGroupControl([]byte(value))
		assert.ErrorContains(t, err, rule, value)
	}
}
