package zookeeper

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// endSession ends a session of the server's on a connection made for it. It tries one
// member after another until one says that the session has ended, or ctx ends.
func (c *Client) endSession(ctx context.Context, g grant) error {
	dial := c.o.dialer(c.hosts)
	err := errors.New("no member was found")
	for {
		all, problem := c.hosts.resolve(ctx)
		if problem != nil {
			err = problem
		}
		for _, address := range all {
			if err = endOn(ctx, dial, address, g, c.o.DialTimeout); err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
			}
		}
		select {
		case <-time.After(firstPause):
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
	}
}

func endOn(ctx context.Context, dial func(context.Context, string) (net.Conn, error), address string, g grant, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	// Both requests at once: the owner's library may be about to take the session back.
	if _, err := conn.Write(append(greeting(g), endRequest()...)); err != nil {
		return err
	}
	reply, err := readFrame(conn)
	if err != nil {
		return err
	}
	if len(reply) < 16 {
		return fmt.Errorf("a greeting of %d bytes", len(reply))
	}
	if binary.BigEndian.Uint64(reply[8:]) == 0 {
		return nil // there is no such session any more
	}
	for {
		if reply, err = readFrame(conn); err != nil {
			return err
		}
		if len(reply) >= 16 && binary.BigEndian.Uint32(reply) == endXid {
			return refusal(int32(binary.BigEndian.Uint32(reply[12:])))
		}
	}
}

// refusal is why a session was not ended, if it was not.
func refusal(code int32) error {
	const ok, expired = 0, -112
	if code == ok || code == expired {
		return nil
	}
	return fmt.Errorf("the server answers %d", code) // it has moved to another member, for one
}

// greeting is the request to go on with a session.
func greeting(g grant) []byte {
	const version, lastZxid = 0, 0
	b := binary.BigEndian.AppendUint32(nil, 4+8+4+8+4+uint32(len(g.password)))
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint64(b, lastZxid)
	b = binary.BigEndian.AppendUint32(b, uint32(g.timeout/time.Millisecond))
	b = binary.BigEndian.AppendUint64(b, uint64(g.session))
	b = binary.BigEndian.AppendUint32(b, uint32(len(g.password)))
	return append(b, g.password[:]...)
}

const endXid = 1

func endRequest() []byte {
	b := binary.BigEndian.AppendUint32(nil, 8)
	b = binary.BigEndian.AppendUint32(b, endXid)
	op := int32(opCloseSession)
	return binary.BigEndian.AppendUint32(b, uint32(op))
}

// readFrame reads a frame of the few that can come here, none of which is large.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 1<<20 {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
