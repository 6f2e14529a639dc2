// Package long chooses the number of seeds, states or rounds of a test that can go on for any time.
package long

import "os"

// Variable names the environment variable that ./test.sh --long sets.
const Variable = "ROTA_LONG"

// Pick returns short by default, and long if Variable is set.
func Pick[T any](short, long T) T {
	if os.Getenv(Variable) != "" {
		return long
	}
	return short
}
