package etcd

import (
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// revOf makes a Rev of one of etcd's revisions, which number the commits of the store.
func revOf(revision int64) registry.Rev { return registry.Rev{Seq: uint64(revision)} }

// entry returns what kv stores for key, or an ErrForeign that names the rule it breaks.
func entry(key registry.Key, kv *mvccpb.KeyValue) (registry.Entry, error) {
	id, value, err := remote.Decode(key, kv.Value)
	switch {
	case err != nil:
		return registry.Entry{}, err
	case key.Owned() && kv.Lease == 0:
		return registry.Entry{}, remote.Foreign(key, "it is an owned key and has no lease")
	case !key.Owned() && kv.Lease != 0:
		return registry.Entry{}, remote.Foreign(key, "it has a lease and is not an owned key")
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

// child returns the key of dir that is stored under that name below prefix.
func child(dir registry.Key, prefix string, stored []byte) (registry.Key, error) {
	name := strings.TrimPrefix(string(stored), prefix)
	key := registry.Join(string(dir), name)
	if strings.Contains(name, "/") || registry.CheckKey(key) != nil {
		return "", remote.Foreign(key, "its name %q breaks a rule of keys", name)
	}
	return key, nil
}

// readChild returns the entry of a child of dir. One that is foreign is reported to the
// logger, and left out: whoever wrote it, the other keys of the directory are sound.
func (c *Client) readChild(dir registry.Key, prefix string, kv *mvccpb.KeyValue) (e registry.Entry, ok bool) {
	key, err := child(dir, prefix, kv.Key)
	if err == nil {
		e, err = entry(key, kv)
	}
	if err != nil {
		c.foreign.report(c, string(kv.Key), kv.ModRevision, err)
	}
	return e, err == nil
}

// readChildren is readChild for many.
func (c *Client) readChildren(dir registry.Key, prefix string, kvs []*mvccpb.KeyValue) []registry.Entry {
	entries := make([]registry.Entry, 0, len(kvs))
	for _, kv := range kvs {
		if e, ok := c.readChild(dir, prefix, kv); ok {
			entries = append(entries, e)
		}
	}
	return entries
}
