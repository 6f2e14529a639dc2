package tcpproxy

import "context"

// Filter sees what a connection carries, in the portions in which it was read, before it
// is passed on; faults have held and delayed it already. It returns what is to be passed
// on instead, which may be b, nothing, or more than it was given. With an error both
// ends of the connection are reset, and b is lost.
//
// It is called for one direction of a connection at a time, but may be for both at once.
// It may block; ctx ends with the connection. It must not keep b.
type Filter func(ctx context.Context, d Direction, b []byte) ([]byte, error)

// SetFilter has make called for each connection that is made from now on, for a filter
// that knows all that its connection has carried: protocols can be told apart only from
// their beginning.
func (p *Proxy) SetFilter(make func() Filter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filter = make
}
