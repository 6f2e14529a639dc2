//go:build rotacheck

package mutex

// downward has the packages that may call another, which they import, under a mutex of theirs. The called
// functions lock a mutex of their own, and call nothing back.
var downward = map[[2]string]bool{
	{"executor", "executor/internal/pool"}: true, {"executor", "internal/group/ownership"}: true,
}
