package main

import (
	"slices"
	"time"
)

// quantile returns the smallest element that is not below the fraction q of all.
func quantile[T time.Duration | float64](all []T, q float64) T {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[min(int(q*float64(len(all))), len(all)-1)]
}
