package main

// promise is what a library promises about fires.
type promise struct {
	mayLose, mayDouble bool
}

// libraryPromises are the promises by library.
var libraryPromises = map[string]promise{
	"rota": {},
}

// check returns an error if the verdict contradicts the promise.
func (p promise) check(v verdict, skipped int) error {
	if p.mayLose {
		v.gaps = 0
	}
	if p.mayDouble {
		v.doubled = 0
	}
	return v.check(skipped)
}
