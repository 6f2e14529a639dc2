// Package tcpproxy is a TCP proxy on the loopback interface that simulates network
// faults, for the fault controls of a backend: it refuses, holds, loses, delays and throttles.
//
// A fault takes effect, on open and new connections, before the call that starts it
// returns. It ends with the function that the call returns; calling that twice is legal.
// Several faults can be active at once, also of one kind.
//
// The proxy does not know the protocol. Requests does, from a Parser: it loses or holds single
// transactions, and drops renewals.
//
// One limit remains: the proxy accepts a connection before it knows whether the server
// would. A client behind a black hole therefore sees an established connection that stays
// silent.
package tcpproxy

// Direction is one direction of a connection.
type Direction int

const (
	// ToServer is the direction of requests.
	ToServer Direction = iota
	// ToClient is the direction of replies and events.
	ToClient
)

func (d Direction) String() string {
	if d == ToServer {
		return "to server"
	}
	return "to client"
}
