package storelog

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestEnsemble_PutsLogsTogether gives transactions of members' logs, each as an epoch and
// a number within it.
func TestEnsemble_PutsLogsTogether(t *testing.T) {
	type id [2]uint64
	zxid := func(n id) uint64 { return n[0]<<32 | n[1] }
	for _, c := range []struct {
		name string
		logs [][]id
		want id // how far it is known
	}{
		{"what all have is taken once", [][]id{{{1, 1}, {1, 2}}, {{1, 1}, {1, 2}}}, id{1, 2}},
		{"what one has missed is in the log of another", [][]id{{{1, 1}, {1, 4}}, {{1, 1}, {1, 2}, {1, 3}}}, id{1, 4}},
		{"what all have missed is waited for", [][]id{{{1, 1}, {1, 4}}, {{1, 1}, {1, 2}}}, id{1, 2}},
		{"an epoch follows what came before it in a log", [][]id{{{1, 1}, {1, 2}, {2, 1}}, {{1, 1}}}, id{2, 1}},
		{"an epoch may be without transactions", [][]id{{{1, 1}, {3, 1}, {3, 2}}}, id{3, 2}},
		{"an epoch waits for the end of the one before", [][]id{{{1, 1}, {1, 2}}, {{1, 3}, {2, 1}}}, id{2, 1}},
		{"one who missed the end of an epoch does not cut it off", [][]id{{{1, 1}, {2, 1}}, {{1, 1}, {1, 2}, {2, 1}, {2, 2}}}, id{2, 2}},
		{"what the next epoch's leader did not know is left out", [][]id{{{1, 1}, {2, 1}, {2, 2}}, {{1, 1}, {1, 2}, {1, 3}, {2, 2}}}, id{2, 2}},
		{"the end of an epoch is waited for", [][]id{{{1, 1}, {1, 2}, {2, 2}}}, id{1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newZKEnsemble("/root")
			newest := uint64(0)
			for _, log := range c.logs {
				before := uint64(0)
				for _, n := range log {
					l.offer(before, &zkTxn{zxid: zxid(n)})
					before = zxid(n)
					newest = max(newest, before)
				}
			}
			l.order(newest)
			assert.Equal(t, zxid(c.want), l.written)
		})
	}
}
