package due_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/record"
)

func TestHasUnclaimed(t *testing.T) {
	at := coordtest.At
	mark := func(epoch, n int) record.Watermark { return record.Watermark{Epoch: epoch, Fire: at(n), Attempt: 1} }
	for name, c := range map[string]struct {
		follows bool
		mark    record.Watermark
		until   record.Instant
		through record.Instant
		want    bool
	}{
		"a fire up to the instant is due":                  {through: at(1), want: true},
		"all fires up to it are claimed":                   {mark: mark(1, 3), through: at(3)},
		"the fire is claimed in an earlier epoch only":     {mark: mark(0, 3), through: at(3), want: true},
		"the shard has claimed fires of a later epoch":     {mark: mark(2, 1), through: at(9)},
		"the fire is not before the end of the epoch":      {mark: mark(1, 2), until: at(3), through: at(3)},
		"a release up to the instant is not claimed":       {follows: true, through: at(2), want: true},
		"a release after it is not claimed":                {follows: true, mark: mark(1, 2), through: at(3)},
		"all releases are claimed":                         {follows: true, mark: mark(1, 4), through: at(9)},
		"releases belong to the epoch after its end":       {follows: true, mark: mark(1, 2), until: at(1), through: at(4), want: true},
		"releases of an earlier epoch than the shard's":    {follows: true, mark: mark(2, 1), through: at(9)},
		"releases before the epoch began, of another mark": {follows: true, mark: mark(0, 9), through: at(2), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := coordtest.Epoch(t, 1, coordtest.Start, 1)
			e.Until = c.until
			var prog due.Program = coordtest.Minutely{}
			if c.follows {
				prog, e.From = coordtest.Following{}, at(3)
				e.Released = []record.Release{{At: at(2), Released: at(5)}, {At: at(4), Released: at(6)}}
			}
			assert.Equal(t, c.want, due.HasUnclaimed(&e, prog, c.mark, c.through))
		})
	}
}
