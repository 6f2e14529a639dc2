package view

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
)

// WriteJSON writes a view as the command and the HTTP API give it.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(FillLists(v))
}

// FillLists returns v, a struct, with empty lists and maps for nil ones, so that their JSON is [] and {}. Fields that
// JSON omits stay nil. Structs in the lists of v are changed in place.
func FillLists(v any) any {
	filled := reflect.New(reflect.TypeOf(v)).Elem()
	filled.Set(reflect.ValueOf(v))
	fill(filled)
	return filled.Interface()
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for field, value := range v.Fields() {
			omits := value.IsZero() && strings.Contains(field.Tag.Get("json"), ",omit")
			if value.CanSet() && !omits {
				fill(value)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return // a text, such as json.RawMessage
		}
		if v.IsNil() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Map:
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
	}
}
