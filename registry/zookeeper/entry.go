package zookeeper

import (
	"bytes"
	"encoding/hex"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// A znode holds a header line followed by the unchanged value, so that text is readable with
// the server's own tools:
//
//	rota1 <transaction>                      the write that created the key
//	rota1 <transaction> created=<zxid>       a later write
//	rota1 <transaction> owner=<session> birth=<n> ...
//	rota1 none                               no value: the key was deleted, or the znode only
//	                                         exists for its children; blanks may follow
//
// There are two forms because the zxid of the commit that creates a key is known only after the
// commit. The czxid of the znode would not do, since the znode outlives its key: see reap.go.
const (
	format      = "rota1"
	noneWord    = "none"
	createdWord = "created="
	ownerWord   = "owner="
	birthWord   = "birth="
)

const (
	// noValue is the content of a znode without a value.
	noValue = format + " " + noneWord + "\n"
	// sessionValue is the content of a session's znode.
	sessionValue = format + " session\n"
)

// znode is the state of a znode after its last write.
type znode struct {
	version int32
	mzxid   int64
	mtime   int64 // milliseconds, by the clock of the leader; not set after this handle's own writes
	size    int   // of the whole content
	empty   bool  // without a value: the key does not exist

	// Only of a key that exists:
	created uint64 // zxid
	txn     registry.TxnID
	owner   registry.SessionID
	birth   uint64 // number of the key among the owned keys of the session
	value   []byte // shares memory with the content that was read
}

// encode returns the content of the znode. created is 0 in the write that creates the key.
func (n *znode) encode() []byte {
	if n.empty {
		return []byte(noValue)
	}
	b := make([]byte, 0, 160+len(n.value))
	b = append(b, format...)
	b = append(b, ' ')
	b = hex.AppendEncode(b, n.txn[:])
	if n.owner != "" {
		b = append(b, " "+ownerWord...)
		b = append(b, n.owner...)
		b = append(b, " "+birthWord...)
		b = strconv.AppendUint(b, n.birth, 10)
	}
	if n.created != 0 {
		b = append(b, " "+createdWord...)
		b = strconv.AppendUint(b, n.created, 10)
	}
	b = append(b, '\n')
	return append(b, n.value...)
}

// decode parses the content of the znode of key. Its errors wrap registry.ErrForeign and name
// the key and the violated rule.
func decode(key registry.Key, raw []byte, stat *zk.Stat) (*znode, error) {
	n := &znode{version: stat.Version, mzxid: stat.Mzxid, mtime: stat.Mtime, size: len(raw)}
	line, value, found := bytes.Cut(raw, []byte("\n"))
	words := bytes.Split(line, []byte(" "))
	switch {
	case string(words[0]) != format:
		return nil, backend.Foreign(key, "its value does not begin with %q", format)
	case !found:
		return nil, backend.Foreign(key, "its first line is not terminated")
	case len(words) == 1:
		return nil, backend.Foreign(key, "its first line names no transaction")
	case string(words[1]) == noneWord:
		n.empty = true
	case hex.DecodedLen(len(words[1])) != len(n.txn):
		return nil, backend.Foreign(key, "its first line names no transaction of %d bytes", len(n.txn))
	default:
		if _, err := hex.Decode(n.txn[:], words[1]); err != nil {
			return nil, backend.Foreign(key, "its first line names no transaction: %w", err)
		}
		n.value, n.created = value, uint64(stat.Mzxid)
	}
	for _, w := range words[2:] {
		if err := n.parseWord(string(w)); err != nil {
			return nil, backend.Foreign(key, "its first line contains an invalid %q: %w", w, err)
		}
	}
	switch owned := stat.EphemeralOwner != 0; {
	case owned != (n.owner != ""):
		return nil, backend.Foreign(key, "it must be ephemeral exactly if its first line names an owner")
	case owned != key.Owned():
		return nil, backend.Foreign(key, "it must be ephemeral exactly if its name begins with a tilde")
	}
	return n, nil
}

// parseWord parses a word of the header line after the transaction. It ignores unknown words,
// which a later version may have written.
func (n *znode) parseWord(word string) (err error) {
	at := func(prefix string) string { return word[len(prefix):] }
	switch {
	case n.empty:
	case hasPrefix(word, createdWord):
		n.created, err = strconv.ParseUint(at(createdWord), 10, 63)
	case hasPrefix(word, birthWord):
		n.birth, err = strconv.ParseUint(at(birthWord), 10, 64)
	case hasPrefix(word, ownerWord):
		n.owner = registry.SessionID(at(ownerWord))
	}
	return err
}

func hasPrefix(word, prefix string) bool {
	return len(word) > len(prefix) && word[:len(prefix)] == prefix
}

// entry returns n as the entry of key. The value is copied to buf if buf is large enough.
func (n *znode) entry(key registry.Key, buf []byte) registry.Entry {
	if cap(buf) < len(n.value) {
		buf = make([]byte, len(n.value))
	}
	return registry.Entry{
		Key:      key,
		Value:    append(buf[:0], n.value...),
		Created:  registry.Rev{Seq: n.created},
		Modified: registry.Rev{Seq: uint64(n.mzxid)},
		Owner:    n.owner,
		Txn:      n.txn,
	}
}

// hasRev reports whether rev is the Rev of n. The zxid suffices: all keys of a commit have its
// zxid, and a key has another zxid after each commit.
func (n *znode) hasRev(rev registry.Rev) bool {
	return !n.empty && rev == registry.Rev{Seq: uint64(n.mzxid)}
}
