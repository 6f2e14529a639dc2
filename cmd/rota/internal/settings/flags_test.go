package settings

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
)

func TestNumber_HasBounds(t *testing.T) {
	for text, want := range map[string]string{
		"1": "", "7": "", "-1": "it is below 1", "0": "it is below 1", "8": "it is above 7",
		"x": "it is not a whole number", "": "it is not a whole number", "1.5": "it is not a whole number",
	} {
		f := pflag.NewFlagSet("rota", pflag.ContinueOnError)
		var n int
		f.Var(NewNumber(&n, 3, 1, 7), "count", "number of fires")
		assert.Equal(t, 3, n)
		assert.Contains(t, f.FlagUsages(), "--count int   number of fires (default 3)")
		err := f.Parse([]string{"--count", text})
		if want == "" {
			assert.NoError(t, err)
			assert.Equal(t, text, f.Lookup("count").Value.String())
			continue
		}
		assert.EqualError(t, err, `invalid argument "`+text+`" for "--count" flag: `+want)
		assert.Equal(t, exit.Usage, exit.CodeOf(err))
		assert.Equal(t, 3, n, "a refused number changes nothing")
	}
}
