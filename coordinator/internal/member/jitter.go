package member

import (
	"crypto/sha256"
	"math/rand/v2"
)

// newJitter returns what spreads out over the fleet when its instances do what must not be
// done by all at once. Names differ, so what is drawn differs; and as it follows from
// nothing else, a fleet in virtual time does the same whenever it is run.
func newJitter(instance, purpose string) *rand.Rand {
	return rand.New(rand.NewChaCha8(sha256.Sum256([]byte(purpose + " of " + instance))))
}
