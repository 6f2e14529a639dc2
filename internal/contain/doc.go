// Package contain calls code of users, such as handlers, strategies and methods of their errors, so
// that a panic in it ends neither a goroutine of rota nor the process. No mutex of rota is held then, which package
// mutex checks.
//
// No recover catches a fatal error of the runtime: concurrent writes of a map, a stack or a heap that is
// exhausted, a deadlock. Nor does it catch os.Exit, or a panic in a goroutine that user code has started.
package contain
