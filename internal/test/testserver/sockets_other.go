//go:build !linux

package testserver

import (
	"errors"
	"net"
)

// listens cannot check this here. A server whose port is taken ends by itself.
func listens(int, int) (bool, error) { return true, nil }

func connected(int, net.Addr, net.Addr) (bool, error) {
	return false, errors.New("find the owner of a connection: only supported on Linux")
}
