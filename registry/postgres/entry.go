package postgres

import (
	"fmt"

	"github.com/rota-dev/rota/registry"
)

func revOf(seq int64) registry.Rev { return registry.Rev{Seq: uint64(seq)} }

// splitKey returns the columns of a key.
func splitKey(key registry.Key) (dir, name string) { return string(key.Dir()), key.Name() }

// toEntry returns the entry whose value, created, modified, owner and txn are in columns of a row from first on. A key whose name breaks the
// rules cannot be stored; that is checked by the table.
func toEntry(key registry.Key, r row, first int) (registry.Entry, error) {
	e := registry.Entry{
		Key: key, Value: r[first], Created: revOf(r.int8(first + 1)), Modified: revOf(r.int8(first + 2)),
		Owner: registry.SessionID(r.text(first + 3)),
	}
	if n := copy(e.Txn[:], r[first+4]); n != len(e.Txn) || e.Modified.Seq == 0 {
		return registry.Entry{}, fmt.Errorf("%w: %s: its row is not one of a registry", registry.ErrForeign, key)
	}
	return e, nil
}
