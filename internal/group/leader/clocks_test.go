package leader

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/group/skew"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

func TestLeader_FindingsOfAnEarlierLeader(t *testing.T) {
	now := time.Now()
	// begun returns the leader of a term that begins beside members b, c and d, of which an earlier leader found b's clock an
	// hour ahead.
	begun := func() *Leader {
		l := &Leader{
			Self: elector.Self{ID: "a.1", ComparesClocks: true, MaxSkew: 5 * time.Second}, Log: slog.New(slog.DiscardHandler),
			clocks: skew.NewComparison(now, now, 2),
			View:   planning.View{Live: map[registry.SessionID]bool{}, Members: map[string]planning.MemberRecord{}, Skewed: map[string]record.Duration{"b.2": record.Duration(time.Hour)}},
		}
		l.clocks.ToPublish = false
		for _, inc := range []string{"a.1", "b.2", "c.3", "d.4"} {
			l.View.Live[record.SessionOf(inc)] = true
			l.View.Members[inc] = planning.MemberRecord{Member: record.Member{Clock: record.InstantOf(now)}}
		}
		return l
	}
	t.Run("hold while a newer reading is not answered", func(t *testing.T) {
		l := begun()
		l.judgeClocks()
		assert.Contains(t, l.View.Skewed, "b.2")
	})
	t.Run("end with an answer that agrees", func(t *testing.T) {
		l := begun()
		l.clocks.Ahead["b.2"] = 0
		l.judgeClocks()
		assert.Empty(t, l.View.Skewed)
	})
	t.Run("of this instance end with its term: its clock is the one that is compared with", func(t *testing.T) {
		l := begun()
		l.View.Skewed = map[string]record.Duration{"a.1": record.Duration(time.Hour)}
		l.judgeClocks()
		assert.Empty(t, l.View.Skewed)
	})
}
