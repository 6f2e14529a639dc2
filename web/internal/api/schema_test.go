package api

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// schema is a JSON schema, in the dialect of OpenAPI 3.1.
type schema = map[string]any

// definitions are the schemas of structs by the names of their types.
type definitions struct {
	schemas map[string]any
	types   map[string]reflect.Type
	// Closed schemas allow no further properties. Those of openapi.json allow them, as later versions add fields.
	closed bool
}

// schemaOf returns the schema of the JSON that view.WriteJSON writes of a type. Structs are references to defs; without defs, they
// are objects.
func schemaOf(t reflect.Type, defs *definitions) schema {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return schema{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[time.Duration]():
		return schema{"type": "integer", "description": "nanoseconds"}
	case t == reflect.TypeFor[json.RawMessage]():
		return schema{}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return schema{"type": "string"}
	}
	switch t.Kind() {
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Int32:
		return schema{"type": "integer"}
	case reflect.Uint, reflect.Uint64, reflect.Uint32:
		return schema{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return schema{"type": "number"}
	case reflect.Pointer:
		return schemaOf(t.Elem(), defs) // views omit those that are nil
	case reflect.Slice:
		return schema{"type": "array", "items": schemaOf(t.Elem(), defs)}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": schemaOf(t.Elem(), defs)}
	case reflect.Struct:
		return defs.structOf(t)
	default:
		return schema{}
	}
}

// structOf defines a struct and returns a reference to it.
func (d *definitions) structOf(t reflect.Type) schema {
	if d == nil {
		return schema{"type": "object"}
	}
	name := t.Name()
	if known, ok := d.types[name]; ok && known != t { // of another package
		pkg := t.PkgPath()[strings.LastIndexByte(t.PkgPath(), '/')+1:]
		name = strings.ToUpper(pkg[:1]) + pkg[1:] + name
	}
	ref := schema{"$ref": "#/components/schemas/" + name}
	if _, ok := d.types[name]; ok {
		return ref
	}
	d.types[name] = t
	properties, required := map[string]any{}, []string{}
	for _, f := range jsonFields(t) {
		properties[f.name] = schemaOf(f.typ, d)
		if !f.omits {
			required = append(required, f.name)
		}
	}
	s := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	if d.closed {
		s["additionalProperties"] = false
	}
	d.schemas[name] = s
	return ref
}

// jsonField is a field of the JSON of a struct.
type jsonField struct {
	name  string
	typ   reflect.Type
	omits bool
	depth int
}

// jsonFields returns the fields of the JSON of a struct in their order. Of fields with one name, the least deep counts, as for
// encoding/json. One that is always omitted, such as an empty struct that hides a deeper field, is left out.
func jsonFields(t reflect.Type) []jsonField {
	var all []jsonField
	var add func(t reflect.Type, depth int)
	add = func(t reflect.Type, depth int) {
		for f := range t.Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported() && !f.Anonymous:
			case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
				add(f.Type, depth+1)
			default:
				if name == "" {
					name = f.Name
				}
				all = append(all, jsonField{name, f.Type, strings.Contains(options, "omit"), depth})
			}
		}
	}
	add(t, 0)
	var fields []jsonField
	for i, f := range all {
		hidden := f.omits && f.typ == reflect.TypeFor[struct{}]()
		for j, other := range all {
			hidden = hidden || i != j && other.name == f.name && other.depth < f.depth
		}
		if !hidden {
			fields = append(fields, f)
		}
	}
	return fields
}
