package backend

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestEncodeValue_WritesAHeaderLineAndTheValue(t *testing.T) {
	id := registry.TxnID{0xab, 15: 0x01}
	require.Equal(t, "rota1 ab000000000000000000000000000001\n{\"a\":1}", string(EncodeValue(id, []byte(`{"a":1}`))))
}

func TestDecodeValue_ReturnsTheEncodedValue(t *testing.T) {
	for _, value := range [][]byte{{}, []byte("text\nof lines\n"), {0, 255, '\n'}, bytes.Repeat([]byte("x"), 128<<10)} {
		id := registry.NewTxnID()
		raw := EncodeValue(id, value)
		require.Len(t, raw, headerBytes+len(value))
		gotID, got, err := DecodeValue("a/b", raw)
		require.NoError(t, err)
		require.Equal(t, id, gotID)
		require.Equal(t, value, got)
	}
}

func TestDecodeValue_NamesTheKeyAndTheRule(t *testing.T) {
	const id = "00000000000000000000000000000000"
	for name, c := range map[string]struct{ raw, rule string }{
		"empty":              {"", "does not begin with"},
		"other text":         {"hello\nworld", "does not begin with"},
		"another format":     {"rota2 " + id + "\nv", "does not begin with"},
		"truncated header":   {"rota1 " + id, "has no end"},
		"no transaction":     {"rota1\nv", "names no transaction of 16 bytes"},
		"half a transaction": {"rota1 " + id[:16] + "\nv", "names no transaction of 16 bytes"},
		"one digit too many": {"rota1 " + id + "0\nv", "no transaction"},
		"no digits":          {"rota1 " + id[:31] + "g\nv", "names no transaction"},
		"one word too many":  {"rota1 " + id + " more\nv", "names no transaction of 16 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := DecodeValue("a/b", []byte(c.raw))
			require.ErrorIs(t, err, registry.ErrForeign)
			require.ErrorContains(t, err, "a/b")
			require.ErrorContains(t, err, c.rule)
			require.False(t, registry.Retryable(err))
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("rota1 00000000000000000000000000000000\nvalue"))
	f.Add([]byte("rota1 0\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		id, value, err := DecodeValue("k", raw)
		if err != nil {
			require.ErrorIs(t, err, registry.ErrForeign)
			return
		}
		_, again, err := DecodeValue("k", EncodeValue(id, value))
		require.NoError(t, err)
		require.True(t, bytes.Equal(value, again))
	})
}
