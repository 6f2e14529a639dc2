package tcpproxy

import "context"

// Filter inspects the bytes of a connection, in the portions in which they were read,
// after faults have held and delayed them. It returns the bytes to forward instead, which
// may be b, none, or more than b. If it returns an error, both ends of the connection are
// reset and b is lost.
//
// Calls for one direction are sequential; calls for both directions may overlap. A Filter
// may block; ctx ends with the connection. It must not retain b.
type Filter func(ctx context.Context, d Direction, b []byte) ([]byte, error)

// SetFilter calls make for each new connection, so that a filter sees its connection from
// the first byte: protocols can only be recognized from their beginning.
func (p *Proxy) SetFilter(make func() Filter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filter = make
}
