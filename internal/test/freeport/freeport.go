// Package freeport finds TCP ports of the loopback interface that stay ours while nobody
// listens on them, so that a server can be stopped and started again on its port.
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

// The ports offered lie below those that systems take for outgoing connections, one of
// which could otherwise sit on a server's port when the server comes back.
const (
	lowest = 10000
	count  = 22000
	tries  = 200
)

// Port is a port that no other caller of Reserve has, in this process or in another.
type Port struct {
	Number int
	token  net.PacketConn
}

// Reserve returns a port on which nobody listened a moment ago. It is the caller's until
// Release, or until the process ends, in whatever way.
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

// reserve claims a TCP port by binding the UDP port of the same number, which nobody needs:
// the kernel sees to it that one process has it, and that it is free again when that dies.
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

// patience is how long Listen tries: a child may have to wait for a processor.
const patience = 5 * time.Second

// Listen listens on the port. What this process has closed, such as the probe of Reserve, can
// live on for a moment in a child that is forked and not executed yet. So a port that is in
// use is tried again for a while.
func (p *Port) Listen() (net.Listener, error) {
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		l, err := net.Listen("tcp4", p.Addr())
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
}

// Release gives the port up. Calling it twice is legal.
func (p *Port) Release() {
	p.token.Close()
}
