package etcd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

func TestDecodeEntry(t *testing.T) {
	id := registry.TxnID{1}
	value := backend.EncodeValue(id, []byte("v"))
	kv := func(lease int64, value []byte) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{CreateRevision: 4, ModRevision: 5, Lease: lease, Value: value}
	}
	want := registry.Entry{Key: "k", Value: []byte("v"), Created: registry.Rev{Seq: 4}, Modified: registry.Rev{Seq: 5}, Txn: id}
	e, err := decodeEntry("k", kv(0, value))
	require.NoError(t, err)
	require.Equal(t, want, e)
	require.Equal(t, len(e.Value), cap(e.Value), "the reader may append")
	want.Key, want.Owner = "~k", aLease
	e, err = decodeEntry("~k", kv(0xab, value))
	require.NoError(t, err)
	require.Equal(t, want, e)
	for key, kv := range map[registry.Key]*mvccpb.KeyValue{"a": kv(1, value), "~b": kv(0, value), "c": kv(0, []byte("short"))} {
		_, err := decodeEntry(key, kv)
		require.ErrorIs(t, err, registry.ErrForeign)
		require.ErrorContains(t, err, string(key))
	}
}

func TestDecodeChildren(t *testing.T) {
	var log bytes.Buffer
	c := &Client{namespace: "/n", log: slog.New(slog.NewTextHandler(&log, nil))}
	value := backend.EncodeValue(registry.TxnID{1}, []byte("v"))
	var kvs []*mvccpb.KeyValue
	for _, name := range []string{"a", "b/c", "foreign", "z"} {
		kvs = append(kvs, &mvccpb.KeyValue{Key: []byte("/n/d//" + name), CreateRevision: 4, ModRevision: 5, Value: value})
	}
	kvs[2].Value = []byte("short")
	entries := c.decodeChildren("d", "/n/d//", kvs)
	require.Len(t, entries, 2)
	require.Equal(t, registry.Key("d/a"), entries[0].Key)
	require.Equal(t, registry.Key("d/z"), entries[1].Key)
	require.Equal(t, "v", string(entries[1].Value))
	require.Equal(t, 2, strings.Count(log.String(), "skipped a key with a foreign value"))
	require.Contains(t, log.String(), "not a valid key segment")
	require.Empty(t, c.decodeChildren("d", "/n/d//", nil))
}

func TestStoredKeys(t *testing.T) {
	c := &Client{namespace: "/n"}
	for key, stored := range map[registry.Key]string{"k": "/n//k", "d/k": "/n/d//k", "d/e/~k": "/n/d/e//~k"} {
		require.Equal(t, stored, c.storedKey(key))
		got, err := childKey(key.Dir(), c.childrenPrefix(key.Dir()), []byte(stored))
		require.NoError(t, err)
		require.Equal(t, key, got)
	}
	for _, name := range []string{"", "a/b", ".", "ä"} {
		_, err := childKey("d", "/n/d//", []byte("/n/d//"+name))
		require.ErrorIs(t, err, registry.ErrForeign, name)
	}
	require.Equal(t, "/n/d/0", string(rangeEnd("/n/d//")))
	for _, lease := range []int64{1, 0xab, 1<<63 - 1} {
		got, ok := leaseID(sessionID(lease))
		require.True(t, ok)
		require.Equal(t, lease, got)
	}
	for _, id := range []registry.SessionID{"", "ab", "0000000000000000", "-000000000000001", "00000000000000AB", "ffffffffffffffff"} {
		_, ok := leaseID(id)
		require.False(t, ok, id)
	}
	for ns, ok := range map[string]bool{"/a": true, "/a/b": true, "": false, "/": false, "a": false, "/a/": false, "/a//b": false} {
		require.Equal(t, ok, checkNamespace(ns) == nil, ns)
	}
}
