// Package texthash has a hash whose values never change: all instances of a fleet must compute the same.
package texthash

import "hash/fnv"

// Sum returns a hash of a text, all of whose bits depend on each byte: the last bytes hardly reach
// the high bits of an FNV hash.
func Sum(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	sum := h.Sum64()
	sum = (sum ^ sum>>32) * 0x9e3779b97f4a7c15
	sum = (sum ^ sum>>29) * 0xbf58476d1ce4e5b9
	return sum ^ sum>>32
}
