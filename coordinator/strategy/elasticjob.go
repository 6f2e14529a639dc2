package strategy

import (
	"cmp"
	"slices"
	"unicode/utf16"
)

// The strategies of Elastic-Job exist for jobs that were written for it: for the same instance names
// they return the same assignment.

// Average assigns contiguous ranges of shards to the candidates in descending order of their names,
// as Elastic-Job's strategy of that name does. Shards left over, the last ones, go to the first
// candidates, one each: of 8 shards the instances c, b and a get 0,1,6 and 2,3,7 and 4,5.
//
// Average ignores weights and current owners, so a join or leave moves many shards. Sticky is as even
// and moves the fewest.
func Average(in Input) (Assignment, error) {
	return assignAverage(in.Shards, elasticOrder(in.Members)), nil
}

// Odevity assigns as Average does, but in ascending order of names if the hash of the job's name is
// even. Jobs with fewer shards than there are candidates so begin at either end of the list.
func Odevity(in Input) (Assignment, error) {
	order := elasticOrder(in.Members)
	if javaHash(in.Job)%2 == 0 {
		slices.Reverse(order)
	}
	return assignAverage(in.Shards, order), nil
}

// Rotate assigns as Average does, with the list of candidates rotated left by the hash of the job's
// name. It follows Elastic-Job's code, which rotates instances; an example in Elastic-Job's
// documentation rotates shards.
func Rotate(in Input) (Assignment, error) {
	order := elasticOrder(in.Members)
	by := rotation(javaHash(in.Job), len(order))
	return assignAverage(in.Shards, slices.Concat(order[by:], order[:by])), nil
}

// rotation returns |hash| mod n. In Java the absolute value of the least int is negative, and
// Elastic-Job fails for such a hash; here it is 1<<31.
func rotation(hash int32, n int) int {
	return int(max(int64(hash), -int64(hash)) % int64(n))
}

// assignAverage assigns shards to the candidates in this order.
func assignAverage(shards int, order []string) Assignment {
	a := make(Assignment, shards)
	each := shards / len(order)
	for shard := range a {
		if even := each * len(order); shard < even {
			a[shard] = order[shard/each]
		} else {
			a[shard] = order[shard-even]
		}
	}
	return a
}

// elasticOrder returns the IDs in Elastic-Job's order: by name, descending, so that 10.0.0.9
// precedes 10.0.0.10. Names are ASCII, which Go and Java compare alike. Elastic-Job's names are
// unique; two incarnations with one name are ordered by ID, descending.
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

// javaHash returns what String.hashCode returns in Java: it hashes UTF-16 code units, with overflow.
func javaHash(s string) int32 {
	var h int32
	for _, unit := range utf16.Encode([]rune(s)) {
		h = 31*h + int32(unit)
	}
	return h
}
