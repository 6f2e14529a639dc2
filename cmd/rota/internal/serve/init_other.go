//go:build !linux

package serve

import "github.com/rota-dev/rota/cmd/rota/internal/exit"

// superviseIfInit does nothing: only on Linux is a process the init of a container.
func superviseIfInit(asked bool) (code int, done bool, err error) {
	if asked {
		return exit.Usage, true, exit.Usagef("--init needs Linux")
	}
	return 0, false, nil
}
