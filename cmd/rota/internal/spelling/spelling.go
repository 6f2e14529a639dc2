// Package spelling finds the name that a misspelt one means.
package spelling

// Nearest returns the name among names that a misspelt one probably means, or "". A third of its letters may differ.
func Nearest(word string, names []string) string {
	best, least := "", 1+len(word)/3
	for _, name := range names {
		if max(len(word)-len(name), len(name)-len(word)) > least {
			continue // the word of a file may have a megabyte
		}
		if d := editDistance(word, name); d <= least && (best == "" || d < least) {
			best, least = name, d
		}
	}
	return best
}

// editDistance returns how many letters must be added, removed or replaced to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
