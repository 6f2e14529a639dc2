package testserver

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/tcpproxy"
)

func TestRewriteAnnouncedAddr_ReplacesTheAddressAndNothingElse(t *testing.T) {
	message := func(addr string) []byte {
		var b bytes.Buffer
		_ = binary.Write(&b, binary.BigEndian, int64(-65536))
		_ = binary.Write(&b, binary.BigEndian, int64(3))
		_ = binary.Write(&b, binary.BigEndian, int32(len(addr)))
		b.WriteString(addr + "votes")
		return b.Bytes()
	}
	in, want := message("127.0.0.1:1"), message("127.0.0.1:54321")
	for size := 1; size <= len(in); size++ { // of the portions in which it is read
		f := rewriteAnnouncedAddr("127.0.0.1:54321")
		var got bytes.Buffer
		for rest := in; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			out, err := f(t.Context(), tcpproxy.ToServer, rest[:min(size, len(rest))])
			require.NoError(t, err)
			got.Write(out)
		}
		require.Equal(t, want, got.Bytes(), "in portions of %d", size)
	}

	f := rewriteAnnouncedAddr("127.0.0.1:54321")
	out, err := f(t.Context(), tcpproxy.ToClient, in)
	require.NoError(t, err)
	require.Equal(t, in, out)
	_, err = f(t.Context(), tcpproxy.ToServer, bytes.Repeat([]byte{1}, 40))
	require.Error(t, err)
}
