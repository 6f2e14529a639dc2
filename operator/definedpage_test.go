package operator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/operator"
)

func TestDefinitionsPage(t *testing.T) {
	define := func(t *testing.T, d defs, n int) {
		var all []operator.Definition
		for i := range n {
			all = append(all, note(fmt.Sprintf("t%d/job-%04d", i%10, i)))
		}
		_, err := d.op.DefineAll(t.Context(), all)
		require.NoError(t, err)
	}
	walk := func(t *testing.T, d defs, limit int, filters ...operator.DefinitionFilter) (names map[string]int, pages int) {
		names = map[string]int{}
		for cursor := ""; ; pages++ {
			p, err := d.op.DefinitionsPage(t.Context(), cursor, limit, filters...)
			require.NoError(t, err)
			assert.LessOrEqual(t, len(p.Jobs), limit)
			for _, j := range p.Jobs {
				names[j.Name]++
			}
			if p.Next == "" {
				return names, pages + 1
			}
			require.NotEqual(t, cursor, p.Next)
			cursor = p.Next
		}
	}
	runDefs(t, "have each job once, at any limit", func(t *testing.T, d defs) {
		define(t, d, 350)
		for _, limit := range []int{7, 100, 700} {
			names, pages := walk(t, d, limit)
			assert.Len(t, names, 350)
			for name, n := range names {
				assert.Equal(t, 1, n, name)
			}
			assert.Equal(t, (350+limit-1)/limit, pages, "full pages")
		}
		names, _ := walk(t, d, 50, operator.WithPrefix("t3/"))
		assert.Len(t, names, 35)
		names, _ = walk(t, d, 50, operator.OfKind("other"))
		assert.Empty(t, names)
	})
	runDefs(t, "none is lost if jobs come and go meanwhile", func(t *testing.T, d defs) {
		define(t, d, 300)
		first, err := d.op.DefinitionsPage(t.Context(), "", 100)
		require.NoError(t, err)
		require.Len(t, first.Jobs, 100)
		require.NoError(t, d.op.Delete(t.Context(), first.Jobs[99].Name, operator.WithoutWait()), "the one that the cursor names")
		rest, err := d.op.DefinitionsPage(t.Context(), first.Next, 1000)
		require.NoError(t, err)
		assert.Len(t, rest.Jobs, 200)
		assert.Empty(t, rest.Next)
	})
	runDefs(t, "a page that selects nothing ends, and leads on", func(t *testing.T, d defs) {
		define(t, d, 2600)
		p, err := d.op.DefinitionsPage(t.Context(), "", 10, operator.WithPrefix("none/"))
		require.NoError(t, err)
		assert.Empty(t, p.Jobs)
		assert.NotEmpty(t, p.Next)
		names, pages := walk(t, d, 10, operator.WithPrefix("none/"))
		assert.Empty(t, names)
		assert.LessOrEqual(t, pages, 3)
	})
	runDefs(t, "any text is a cursor", func(t *testing.T, d defs) {
		define(t, d, 10)
		for _, cursor := range []string{"x", "/", "~", strings.Repeat("y", 10_000), "\x00"} {
			_, err := d.op.DefinitionsPage(t.Context(), cursor, 10)
			assert.NoError(t, err)
		}
	})
	runDefs(t, "refuse a limit below 1", func(t *testing.T, d defs) {
		_, err := d.op.DefinitionsPage(t.Context(), "", 0)
		require.ErrorIs(t, err, operator.ErrInvalidArgument)
	})
}
