package etcd

import (
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// revOf returns the Rev for an etcd revision, which numbers the commits of the store.
func revOf(revision int64) registry.Rev { return registry.Rev{Seq: uint64(revision)} }

// decodeEntry returns the entry that kv stores for key, or an ErrForeign that names the
// violated rule.
func decodeEntry(key registry.Key, kv *mvccpb.KeyValue) (registry.Entry, error) {
	id, value, err := backend.DecodeValue(key, kv.Value)
	switch {
	case err != nil:
		return registry.Entry{}, err
	case key.Owned() && kv.Lease == 0:
		return registry.Entry{}, backend.Foreign(key, "it is an owned key and has no lease")
	case !key.Owned() && kv.Lease != 0:
		return registry.Entry{}, backend.Foreign(key, "it has a lease and is not an owned key")
	}
	e := registry.Entry{
		Key:      key,
		Value:    value[:len(value):len(value)],
		Created:  revOf(kv.CreateRevision),
		Modified: revOf(kv.ModRevision),
		Txn:      id,
	}
	if kv.Lease != 0 {
		e.Owner = sessionID(kv.Lease)
	}
	return e, nil
}

// childKey returns the key of a child of dir, given its stored key and the prefix that the
// stored keys of all children share.
func childKey(dir registry.Key, prefix string, stored []byte) (registry.Key, error) {
	name := strings.TrimPrefix(string(stored), prefix)
	key := registry.Join(string(dir), name)
	if name == "" || strings.Contains(name, "/") || registry.CheckKey(key) != nil {
		return "", backend.Foreign(key, "its name %q is not a valid key segment", name)
	}
	return key, nil
}

// decodeChild returns the entry of a child of dir. A foreign value is logged and skipped, so
// that one bad key does not hide the others of its directory.
func (c *Client) decodeChild(dir registry.Key, prefix string, kv *mvccpb.KeyValue) (e registry.Entry, ok bool) {
	key, err := childKey(dir, prefix, kv.Key)
	if err == nil {
		e, err = decodeEntry(key, kv)
	}
	if err != nil {
		c.foreign.report(c, string(kv.Key), kv.ModRevision, err)
	}
	return e, err == nil
}

// decodeChildren decodes all kvs with decodeChild.
func (c *Client) decodeChildren(dir registry.Key, prefix string, kvs []*mvccpb.KeyValue) []registry.Entry {
	entries := make([]registry.Entry, 0, len(kvs))
	for _, kv := range kvs {
		if e, ok := c.decodeChild(dir, prefix, kv); ok {
			entries = append(entries, e)
		}
	}
	return entries
}
