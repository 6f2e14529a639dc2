// Package freeport reserves TCP ports of the loopback interface. A port stays reserved
// while no process listens on it, so that a server can be stopped and restarted on its
// port.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"
)

// The ports are below the range that systems use for outgoing connections; one of those
// could otherwise occupy a server's port when the server restarts.
const (
	lowest = 10000
	count  = 22000
	tries  = 200
)

// Port is a reserved port. No other caller of Reserve gets it, in this process or
// another.
type Port struct {
	Number int
	token  net.PacketConn
}

// Reserve returns a port without a listener. It stays reserved until Release or the end
// of the process.
func Reserve() (*Port, error) {
	var err error
	for range tries {
		var p *Port
		if p, err = reserve(lowest + rand.IntN(count)); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("find a free port: %w", err)
}

// reserve reserves a TCP port by binding the UDP port of the same number, which is
// otherwise unused: the kernel grants it to one process and frees it when that process
// ends.
func reserve(number int) (*Port, error) {
	p := &Port{Number: number}
	token, err := net.ListenPacket("udp4", p.Addr())
	if err != nil {
		return nil, err
	}
	probe, err := net.Listen("tcp4", p.Addr())
	if err != nil {
		token.Close()
		return nil, err
	}
	probe.Close()
	p.token = token
	return p, nil
}

// Addr returns the port's host:port.
func (p *Port) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Number))
}

// patience bounds how long Listen retries: a forked child may wait for a CPU.
const patience = 5 * time.Second

// Listen listens on the port. It retries for a while if the port is in use: a socket that
// this process has closed, such as the probe of Reserve, can survive briefly in a forked
// child that has not called exec yet.
func (p *Port) Listen() (net.Listener, error) {
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		l, err := net.Listen("tcp4", p.Addr())
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
}

// Release ends the reservation. Calling it twice is legal.
func (p *Port) Release() {
	p.token.Close()
}
