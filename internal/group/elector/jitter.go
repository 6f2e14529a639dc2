package elector

import (
	"crypto/sha256"
	"math/rand/v2"
)

// NewJitter returns a source of random delays, which keep the instances of a fleet from acting
// all at once. It depends on nothing but the instance's name and the purpose: instances draw
// different delays, and a fleet in virtual time draws the same ones whenever it is run.
func NewJitter(instance, purpose string) *rand.Rand {
	return rand.New(rand.NewChaCha8(sha256.Sum256([]byte(purpose + " of " + instance))))
}
