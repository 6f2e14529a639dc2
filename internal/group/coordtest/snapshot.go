package coordtest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Snapshot returns everything that is reachable from v as text: unexported fields, elements of
// slices up to their capacity, and what pointers point to. Of functions and channels it shows only
// whether they are nil.
func Snapshot(v any) string {
	var b strings.Builder
	writeSnapshot(&b, reflect.ValueOf(v))
	return b.String()
}

func writeSnapshot(b *strings.Builder, v reflect.Value) {
	switch v.Kind() {
	case reflect.Invalid:
		b.WriteString("nil")
	case reflect.Pointer, reflect.Interface:
		writeSnapshot(b, v.Elem())
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		fmt.Fprint(b, v.IsNil())
	case reflect.Struct:
		b.WriteByte('{')
		for i := range v.NumField() {
			b.WriteString(v.Type().Field(i).Name + ":")
			writeSnapshot(b, v.Field(i))
			b.WriteByte(' ')
		}
		b.WriteByte('}')
	case reflect.Map:
		entries := make([]string, 0, v.Len())
		for _, k := range v.MapKeys() {
			var e strings.Builder
			writeSnapshot(&e, k)
			e.WriteByte(':')
			writeSnapshot(&e, v.MapIndex(k))
			entries = append(entries, e.String())
		}
		slices.Sort(entries)
		fmt.Fprintf(b, "%q", entries)
	case reflect.Slice:
		fmt.Fprintf(b, "%d", v.Len())
		v = v.Slice(0, v.Cap())
		fallthrough
	case reflect.Array:
		b.WriteByte('[')
		for i := range v.Len() {
			writeSnapshot(b, v.Index(i))
			b.WriteByte(' ')
		}
		b.WriteByte(']')
	case reflect.String:
		fmt.Fprintf(b, "%q", v.String())
	default:
		fmt.Fprint(b, v)
	}
}
