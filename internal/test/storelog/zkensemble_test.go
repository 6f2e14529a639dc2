package storelog

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestZKEnsemble_MergesLogs merges logs of members. A transaction is an epoch and a number within it.
func TestZKEnsemble_MergesLogs(t *testing.T) {
	type id [2]uint64
	zxid := func(n id) uint64 { return n[0]<<32 | n[1] }
	for _, c := range []struct {
		name string
		logs [][]id
		want id // the last one that is read
	}{
		{"a transaction in all logs is read once", [][]id{{{1, 1}, {1, 2}}, {{1, 1}, {1, 2}}}, id{1, 2}},
		{"a transaction missing in one log is read from another", [][]id{{{1, 1}, {1, 4}}, {{1, 1}, {1, 2}, {1, 3}}}, id{1, 4}},
		{"a transaction missing in all logs is awaited", [][]id{{{1, 1}, {1, 4}}, {{1, 1}, {1, 2}}}, id{1, 2}},
		{"an epoch follows the transaction before it in a log", [][]id{{{1, 1}, {1, 2}, {2, 1}}, {{1, 1}}}, id{2, 1}},
		{"an epoch may have no transactions", [][]id{{{1, 1}, {3, 1}, {3, 2}}}, id{3, 2}},
		{"an epoch waits for the end of the one before", [][]id{{{1, 1}, {1, 2}}, {{1, 3}, {2, 1}}}, id{2, 1}},
		{"a log without the end of an epoch does not cut the epoch off", [][]id{{{1, 1}, {2, 1}}, {{1, 1}, {1, 2}, {2, 1}, {2, 2}}}, id{2, 2}},
		{"a transaction unknown to the next epoch's leader is left out", [][]id{{{1, 1}, {2, 1}, {2, 2}}, {{1, 1}, {1, 2}, {1, 3}, {2, 2}}}, id{2, 2}},
		{"the end of an epoch is awaited", [][]id{{{1, 1}, {1, 2}, {2, 2}}}, id{1, 1}},
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
