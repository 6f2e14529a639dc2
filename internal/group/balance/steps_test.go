package balance

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A later step corrects the choices of an earlier one, so the results of Assign do not show whether each
// step keeps its own promise. The tests of this file call the steps.

func TestExtras_Costs(t *testing.T) {
	for _, member := range []struct {
		name  string
		left  []int64
		share *big.Rat
	}{
		{"with equal weights", nil, nil},
		{"with a whole number as aim", []int64{0}, big.NewRat(0, 1)},
		{"with a fraction in the aim", []int64{1}, big.NewRat(1, 2)},
	} {
		t.Run("are the differences of the squares "+member.name, func(t *testing.T) {
			for total := -3; total <= 4; total++ {
				x := &extras{total: []int{total}, left: member.left}
				now := square(total, member.share)
				assert.Equal(t, square(total+1, member.share)-now, x.costOfOneMore(0), "one more than %d", total)
				assert.Equal(t, now-square(total-1, member.share), x.gainOfOneLess(0), "one less than %d", total)
			}
		})
	}
}

func TestExtras_TotalsAreEven(t *testing.T) {
	for _, tt := range []struct {
		name   string
		totals []int
		want   bool
	}{
		{"if all are equal", []int{2, 2, 2}, true},
		{"if they differ by one", []int{1, 2, 1}, true},
		{"not if they differ by two", []int{1, 2, 3}, false},
		{"below zero as above", []int{-1, -2}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, (&extras{total: tt.totals}).totalsAreEven())
		})
	}
}

func TestExtras_TransferSize(t *testing.T) {
	for _, tt := range []struct {
		name   string
		totals []int
		left   []int64
		want   int
	}{
		{"lifts the receiver to the average", []int{10, 0, 2}, nil, 4},
		{"does not lift the receiver above the average, rounded down", []int{10, 0, 3}, nil, 4},
		{"does not lower the giver below the average", []int{7, 0, 6, 6, 6}, nil, 2},
		{"does not lower the giver below the average, rounded up", []int{7, 0, 6, 6, 5}, nil, 2},
		{"leaves the giver one more if its aim has a fraction", []int{8, 0, 6, 6, 5}, []int64{1, 0, 0, 0, 0}, 2},
		{"leaves the giver no more if its aim is a whole number", []int{8, 0, 6, 6, 5}, []int64{0, 1, 1, 1, 1}, 3},
		{"is at least one", []int{2, 1, 1}, nil, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, (&extras{total: tt.totals, left: tt.left}).transferSize(0, 1))
		})
	}
}

// priced returns extras with these totals and prices: a row for each member that gives.
func priced(totals []int, prices ...[]int8) *extras {
	n := len(totals)
	x := &extras{total: totals, dist: make([]int, n), prev: make([]int, n), queued: make([]bool, n)}
	for _, row := range prices {
		x.price = append(x.price, row...)
	}
	return x
}

func TestExtras_FindPaths(t *testing.T) {
	const none = noTransfer
	for _, tt := range []struct {
		name   string
		totals []int
		prices []int8 // of transfers from the first member to each
		want   int
	}{
		{"returns the member for which one more costs least", []int{5, 2, 1, 2}, []int8{none, 0, 0, 0}, 2},
		{"prefers a lower total to a lower price", []int{5, 2, 1, 2}, []int8{none, -1, 1, -1}, 2},
		{"returns the nearest of several", []int{5, 1, 1, 1}, []int8{none, 1, 0, 1}, 2},
		{"returns the first of several that are equally near", []int{5, 1, 1, 1}, []int8{none, 1, 0, 0}, 2},
		{"returns only members that it reaches", []int{5, 1, 2, 1}, []int8{none, none, 0, none}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			no := []int8{none, none, none, none}
			assert.Equal(t, tt.want, priced(tt.totals, tt.prices, no, no, no).findPaths(0))
		})
	}
}

func TestExtras_CyclePrice(t *testing.T) {
	for _, tt := range []struct {
		name   string
		totals []int
		price  int8
		want   int
		trade  bool
	}{
		{"a transfer that costs a move can be a trade", []int{1, 2}, 1, 0, true},
		{"a trade leaves the totals as even as before", []int{1, 1}, 1, 1, false},
		{"a free transfer is made", []int{1, 2}, 0, 0, false},
		{"a transfer that saves a move is made", []int{1, 2}, -1, -1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := priced(tt.totals, []int8{noTransfer, tt.price}, []int8{noTransfer, noTransfer})
			price, trade := x.cyclePrice(0, 1)
			assert.Equal(t, tt.want, price)
			assert.Equal(t, tt.trade, trade)
		})
	}
}

func TestExtras_UpdatePrices(t *testing.T) {
	t.Run("updates the prices from and to each member", func(t *testing.T) {
		const n, jobs = 3, 2
		x := newExtras(n, jobs)
		x.total, x.price = make([]int, n), make([]int8, n*n)
		fresh := func() (all []int8) {
			for from := range n {
				for to := range n {
					all = append(all, x.cheapestPrice(from, to))
				}
			}
			return all
		}
		for j := range jobs {
			x.addJob(j, []int{0, 1, 2}, 1, make([]int, n))
			x.got[0].set(j)
		}
		x.updatePrices([]int{0, 1, 2})
		require.Equal(t, fresh(), x.price)
		for _, to := range []int{1, 2} {
			x.transfer(0, to, 1)
			x.updatePrices([]int{0, to})
			require.Equal(t, fresh(), x.price, "after a transfer to %d", to)
		}
	})
}

func TestRanking(t *testing.T) {
	t.Run("orders members by total, the least first", func(t *testing.T) {
		assert.Equal(t, []int{2, 0, 1}, newRanking([]int{1, 2, 0}, nil).order)
		assert.Equal(t, []int{2, 0, 1}, newRanking([]int{1, 2, 0}, []int64{0, 9, 0}).order)
	})
	t.Run("puts the largest fraction first among equal totals", func(t *testing.T) {
		assert.Equal(t, []int{3, 1, 0, 2}, newRanking([]int{1, 1, 1, 0}, []int64{3, 5, 3, 0}).order)
	})
	t.Run("compares totals, then fractions, and keeps the order of equals", func(t *testing.T) {
		for _, tt := range []struct {
			totals []int
			left   []int64
			want   bool
		}{
			{[]int{1, 2}, nil, true},
			{[]int{2, 1}, nil, false},
			{[]int{1, 1}, nil, true},
			{[]int{1, 1}, []int64{5, 3}, true},
			{[]int{1, 1}, []int64{3, 5}, false},
			{[]int{1, 1}, []int64{3, 3}, true},
			{[]int{1, 2}, []int64{3, 5}, true},
			{[]int{2, 1}, []int64{5, 3}, false},
		} {
			assert.Equal(t, tt.want, newRanking(tt.totals, tt.left).precedes(0, 1), "totals %v, fractions %v", tt.totals, tt.left)
		}
	})
	t.Run("raises the first eligible members and puts each behind those with its total", func(t *testing.T) {
		r := newRanking([]int{0, 1, 3, 0, 0}, nil)
		var raised []int
		r.raise(2, func(m int) bool { return m != 3 }, func(m int) { raised = append(raised, m) })
		assert.Equal(t, []int{0, 4}, raised)
		assert.Equal(t, []int{1, 1, 3, 0, 1}, r.total)
		assert.Equal(t, []int{3, 1, 0, 4, 2}, r.order)
	})
}
