// Package count writes numbers of things in texts.
package count

import "fmt"

// Of returns "1 job", or "2 jobs".
func Of(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
