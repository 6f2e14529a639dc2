package zkwire

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func bodyOf(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(p))
		case bool:
			if b = append(b, 0); p {
				b[len(b)-1] = 1
			}
		case string:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(p))), p...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

// replyOf returns a successful reply to request 1.
func replyOf(body []byte) []byte { return append(bodyOf(1, 0, 7, 0), body...) }

func toRequest(op Op) func(int32) (Op, bool) {
	return func(xid int32) (Op, bool) { return op, xid == 1 }
}

var stat = make([]byte, statBytes)

var bodies = map[Op][]byte{
	Create:      bodyOf("/path"),
	Sync:        bodyOf("/path"),
	Exists:      stat,
	SetData:     stat,
	GetData:     bodyOf("value", stat),
	GetChildren: bodyOf(2, "a", "b", stat),
	GetACL:      bodyOf(2, 31, "world", "anyone", 1, "digest", "me:hash", stat),
	Multi: bodyOf(13, false, 0, 2, false, 0, 1, false, 0, "/path", 5, false, 0, stat, -1, false, -101, -101,
		-1, true, -1),
	Delete: nil,
	Ping:   nil,
}

// The client library reads past the end of a reply that is cut, or allocates for what is not there.
func TestCheckReply_AcceptsEachReplyWholeAndNoPartOfIt(t *testing.T) {
	for op, body := range bodies {
		require.NoError(t, CheckReply(replyOf(body), toRequest(op)), "%d", op)
		require.NoError(t, CheckReply(replyOf(append(body[:len(body):len(body)], 1, 2, 3)), toRequest(op)), "%d: a later version may add fields", op)
		for n := range body {
			require.ErrorIs(t, CheckReply(replyOf(body[:n]), toRequest(op)), ErrMalformed, "%d with %d bytes", op, n)
		}
	}
	require.NoError(t, CheckReply(replyOf(bodyOf(-1, stat)), toRequest(GetData)), "no value")
	require.NoError(t, CheckReply(bodyOf(1, 0, 7, -101), toRequest(GetData)), "a failure has no body")
	require.NoError(t, CheckReply(bodyOf(2, 0, 7, 0), toRequest(GetData)), "an answer to no request, which the library drops")
	require.NoError(t, CheckReply(bodyOf(-1, -1, -1, 0, 3, 3, "/path"), toRequest(GetData)), "an event")
	require.ErrorIs(t, CheckReply(bodyOf(-1, -1, -1, 0, 3, 3), toRequest(GetData)), ErrMalformed)
	for n := range 16 {
		require.ErrorIs(t, CheckReply(make([]byte, n), toRequest(GetData)), ErrMalformed)
	}
}

func TestCheckReply_RefusesListsThatClaimMoreThanTheyHave(t *testing.T) {
	for op, body := range map[Op][]byte{
		GetChildren: bodyOf(1<<31-1, "a", stat),
		GetACL:      bodyOf(-1, 31, "world", "anyone", stat),
		Multi:       bodyOf(5, false, 0, stat),
	} {
		require.ErrorIs(t, CheckReply(replyOf(body), toRequest(op)), ErrMalformed, "%d", op)
	}
}

func FuzzCheckReply(f *testing.F) {
	for op, body := range bodies {
		f.Add(int32(op), replyOf(body))
	}
	f.Fuzz(func(t *testing.T, op int32, frame []byte) {
		_ = CheckReply(frame, toRequest(Op(op))) // returns, and reads no byte that is not there
	})
}
