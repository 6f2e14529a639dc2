package zookeeper

import (
	"bytes"
	"encoding/hex"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// A znode holds a line, and after it the user's value as it is, so that a text can be read
// with the server's own tools:
//
//	rota1 <transaction>                      the write that made the key
//	rota1 <transaction> created=<zxid>       a later one
//	rota1 <transaction> owner=<session> birth=<n> ...
//	rota1 none                               no value: the key was deleted, or the znode is
//	                                         there for those below it; blanks may follow
//
// The zxid of the commit that makes a key is known only after it, hence the two forms. It
// cannot be read off the znode, which outlives its key: see reap.go.
const (
	format      = "rota1"
	noneWord    = "none"
	createdWord = "created="
	ownerWord   = "owner="
	birthWord   = "birth="
)

const (
	// noValue is what a znode without a value holds.
	noValue = format + " " + noneWord + "\n"
	// sessionValue is what the znode of a session holds.
	sessionValue = format + " session\n"
)

// node is a znode as of its last write.
type node struct {
	version int32
	mzxid   int64
	mtime   int64 // in ms, by the clock of the leader that committed it; not set by writes of our own
	size    int   // of what the znode holds
	none    bool  // there is no key

	// Of a key:
	created uint64 // zxid
	txn     registry.TxnID
	owner   registry.SessionID
	birth   uint64 // counts the owned keys that the session made
	value   []byte // a slice of what was read
}

// encode returns what n holds. created is 0 in the write that makes the key.
func (n *node) encode() []byte {
	if n.none {
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

// decode is the inverse of encode for what was read at key. An error wraps
// registry.ErrForeign and names the key and the rule that raw breaks.
func decode(key registry.Key, raw []byte, stat *zk.Stat) (*node, error) {
	n := &node{version: stat.Version, mzxid: stat.Mzxid, mtime: stat.Mtime, size: len(raw)}
	line, value, found := bytes.Cut(raw, []byte("\n"))
	words := bytes.Split(line, []byte(" "))
	switch {
	case string(words[0]) != format:
		return nil, remote.Foreign(key, "its value does not begin with %q", format)
	case !found:
		return nil, remote.Foreign(key, "the first line of its value has no end")
	case len(words) == 1:
		return nil, remote.Foreign(key, "its first line names no transaction")
	case string(words[1]) == noneWord:
		n.none = true
	case hex.DecodedLen(len(words[1])) != len(n.txn):
		return nil, remote.Foreign(key, "its first line names no transaction of %d bytes", len(n.txn))
	default:
		if _, err := hex.Decode(n.txn[:], words[1]); err != nil {
			return nil, remote.Foreign(key, "its first line names no transaction: %w", err)
		}
		n.value, n.created = value, uint64(stat.Mzxid)
	}
	for _, w := range words[2:] {
		if err := n.take(string(w)); err != nil {
			return nil, remote.Foreign(key, "its first line has %q: %w", w, err)
		}
	}
	switch owned := stat.EphemeralOwner != 0; {
	case owned != (n.owner != ""):
		return nil, remote.Foreign(key, "it has an owner in its first line or is ephemeral, but not both")
	case owned != key.Owned():
		return nil, remote.Foreign(key, "it is ephemeral or has a tilde, but not both")
	}
	return n, nil
}

// take reads a word after the transaction. One that is not known is passed over: a later
// version may have put it there.
func (n *node) take(word string) (err error) {
	at := func(prefix string) string { return word[len(prefix):] }
	switch {
	case n.none:
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

// entry returns n as the entry of key. Its value goes into buf if there is room.
func (n *node) entry(key registry.Key, buf []byte) registry.Entry {
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

// is reports whether n is what rev names. All keys of a commit have its zxid, and no two
// commits of a key have the same, so that nothing else is needed to name one.
func (n *node) is(rev registry.Rev) bool {
	return !n.none && rev == registry.Rev{Seq: uint64(n.mzxid)}
}
