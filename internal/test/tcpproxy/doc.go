// Package tcpproxy is a TCP proxy on the loopback interface that can be made to behave
// like a bad network: refuse, swallow, lose, delay.
//
// Faults take effect before the call that orders them returns, on connections that are
// open and on those to come, and end with the function that the call returned; calling
// that twice is legal. Several can be on at once, of one kind too.
//
// What a fault cannot do: a process in the way accepts a connection before it knows
// whether the server would, so a client behind a black hole sees its connection made and
// then nothing.
package tcpproxy

// Direction is one of the two ways through a connection.
type Direction int

const (
	// ToServer is the way of requests.
	ToServer Direction = iota
	// ToClient is the way of replies and events.
	ToClient
)

func (d Direction) String() string {
	if d == ToServer {
		return "to server"
	}
	return "to client"
}
