//go:build race

package fleet

// maxMemory is more than without the race detector, which keeps shadow memory.
const maxMemory = 800 << 20
