//go:build rotacheck

package mutex

// downward has the packages that may call another, which they import, under a mutex of theirs. What they call locks a
// mutex and calls nothing back.
var downward = map[[2]string]bool{
	{"executor", "executor/internal/pool"}: true, {"executor", "internal/group/ownership"}: true,
}
