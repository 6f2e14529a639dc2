package jobsfile

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/rota-dev/rota/internal/record"
)

// poolsShape is the map of the sizes of pools.
func poolsShape() shape[map[string]int] {
	size := number(0)
	size.text, size.schema["maximum"] = "number from 0 to 10000", record.MaxPoolSize
	readNumber := size.read
	size.read = func(r *reader, n *yaml.Node) (int, bool) {
		v, ok := readNumber(r, n)
		if ok && v > record.MaxPoolSize {
			r.report(n, "is %d, above %d", v, record.MaxPoolSize)
			return 0, false
		}
		return v, ok
	}
	pools := mapOf("name", size)
	readMap := pools.read
	pools.schema["maxProperties"] = record.MaxPools
	pools.read = func(r *reader, n *yaml.Node) (map[string]int, bool) {
		all, ok := readMap(r, n)
		if len(all) > record.MaxPools {
			r.report(n, "has %d pools, and a group at most %d", len(all), record.MaxPools)
			return nil, false
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if err := record.CheckPool(name); err != nil {
				path := joinPath(r.path, name)
				r.reportAt(path, r.places[path].key, "%v", err)
				ok = false
			}
		}
		return all, ok
	}
	return pools
}

// checkPools notes jobs and kinds whose pool is not in a file that has pools.
func (b *builder) checkPools(specs ...[]jobSpec) {
	if b.file.Pools == nil {
		return
	}
	names := slices.Sorted(maps.Keys(b.file.Pools))
	all := slices.Concat(specs...)
	for i := range all {
		s := &all[i]
		if _, sized := b.file.Pools[s.Pool]; sized || s.Pool == "" || s.broken {
			continue
		}
		hint := ""
		if near := suggest(s.Pool, names); near != "" {
			hint = ": is it " + near + "?"
		}
		b.note("%s: the file has no size for pool %s; without one, runs wait%s", s.path, s.Pool, hint)
	}
}
