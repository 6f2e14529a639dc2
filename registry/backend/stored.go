package backend

import (
	"bytes"
	"encoding/hex"
	"fmt"

	"github.com/rota-dev/rota/registry"
)

// format begins every stored value. A later format begins with another word.
const format = "rota1"

// headerBytes is the length of the header line before the value.
const headerBytes = len(format) + len(" ") + 2*len(registry.TxnID{}) + len("\n")

// EncodeValue returns the stored form of a value: a header line with the format and the
// transaction that wrote it, then the unchanged value, so that a text can be read with the
// tools of the server.
func EncodeValue(id registry.TxnID, value []byte) []byte {
	b := make([]byte, 0, headerBytes+len(value))
	b = append(b, format...)
	b = append(b, ' ')
	b = hex.AppendEncode(b, id[:])
	b = append(b, '\n')
	return append(b, value...)
}

// DecodeValue is the inverse of EncodeValue. The returned value is a slice of raw. An error wraps
// registry.ErrForeign and names the key and the rule that raw breaks.
func DecodeValue(key registry.Key, raw []byte) (id registry.TxnID, value []byte, err error) {
	line, value, found := bytes.Cut(raw, []byte("\n"))
	word, txn, _ := bytes.Cut(line, []byte(" "))
	switch {
	case string(word) != format:
		return id, nil, Foreign(key, "its value does not begin with %q", format)
	case !found:
		return id, nil, Foreign(key, "the first line of its value has no end")
	case hex.DecodedLen(len(txn)) != len(id):
		return id, nil, Foreign(key, "its first line names no transaction of %d bytes", len(id))
	}
	if _, err := hex.Decode(id[:], txn); err != nil {
		return id, nil, Foreign(key, "its first line names no transaction: %w", err)
	}
	return id, value, nil
}

// Foreign returns the error of a stored value at key that breaks a rule.
func Foreign(key registry.Key, rule string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", registry.ErrForeign, key, fmt.Errorf(rule, args...))
}
