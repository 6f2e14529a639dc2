//go:build !race

package fleet

// maxMemory bounds the resident bytes of a process beside hostile records.
const maxMemory = 200 << 20
