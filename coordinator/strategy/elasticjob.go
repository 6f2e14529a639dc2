package strategy

import (
	"cmp"
	"slices"
	"unicode/utf16"
)

// The strategies of Elastic-Job, for jobs that come from there: given the same instance
// names they deal as it does. None of them looks at who has what, so that a join or leave
// moves many shards; sticky is as even and moves the fewest. Nor does any look at weights.

// Average deals contiguous shares in Elastic-Job's order of instances. The shards left
// over, the last ones, go one each to the first instances: 8 shards over 3 are 0,1,6 and
// 2,3,7 and 4,5.
func Average(in Input) (Assignment, error) {
	return dealAverage(in.Shards, elasticOrder(in.Members)), nil
}

// Odevity is average with the instances in reverse if the hash of the job's name is
// even. With fewer shards than instances, jobs so begin at either end.
func Odevity(in Input) (Assignment, error) {
	order := elasticOrder(in.Members)
	if javaHash(in.Job)%2 == 0 {
		slices.Reverse(order)
	}
	return dealAverage(in.Shards, order), nil
}

// Rotate is average with the instances rotated left by the hash of the job's name. It is
// the instances that rotate, as in Elastic-Job's code; an example in its documentation
// rotates shards.
func Rotate(in Input) (Assignment, error) {
	order := elasticOrder(in.Members)
	by := rotation(javaHash(in.Job), len(order))
	return dealAverage(in.Shards, slices.Concat(order[by:], order[:by])), nil
}

// rotation is |hash| mod n. Java's absolute value of the least int is that int itself,
// below zero, and Elastic-Job fails on it; here it is 1<<31, as in arithmetic.
func rotation(hash int32, n int) int {
	return int(max(int64(hash), -int64(hash)) % int64(n))
}

func dealAverage(shards int, order []string) Assignment {
	a := make(Assignment, shards)
	each := shards / len(order)
	for shard := range a {
		if dealt := each * len(order); shard < dealt {
			a[shard] = order[shard/each]
		} else {
			a[shard] = order[shard-dealt]
		}
	}
	return a
}

// elasticOrder returns the IDs in the order in which Elastic-Job feeds its strategies:
// by name as Java compares strings, descending, so that 10.0.0.9 precedes 10.0.0.10. Go
// compares them alike: names are ASCII. They are unique there; where two incarnations
// share one, their IDs descend too.
func elasticOrder(members []Candidate) []string {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Name, a.Name), cmp.Compare(b.ID, a.ID))
	})
	ids := make([]string, len(sorted))
	for i, m := range sorted {
		ids[i] = m.ID
	}
	return ids
}

// javaHash is String.hashCode, with its wrap-around.
func javaHash(s string) int32 {
	var h int32
	for _, unit := range utf16.Encode([]rune(s)) {
		h = 31*h + int32(unit)
	}
	return h
}
