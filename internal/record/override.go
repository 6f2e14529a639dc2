package record

import (
	"encoding/json"
	"fmt"
	"slices"
)

// fixedFields are the fields of a definition that no override replaces: they identify it, or apply once only.
var fixedFields = []string{"name", "kind", "kind_revision", "created", "revision", "start_paused"}

// MergeDefinition returns a definition with the fields of an override in place of its own. A field that is null is
// left out. The result is the same on all instances.
func MergeDefinition(def, override json.RawMessage) (json.RawMessage, error) {
	var all, more map[string]json.RawMessage
	if err := json.Unmarshal(def, &all); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(override, &more); err != nil {
		return nil, err
	}
	for name, value := range more {
		switch {
		case slices.Contains(fixedFields, name):
			return nil, fmt.Errorf("field %q cannot be overridden", name)
		case string(value) == "null":
			delete(all, name)
		default:
			all[name] = value
		}
	}
	return marshal(all)
}
