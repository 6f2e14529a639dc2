package executor

import "encoding/json"

// DefinitionOfKind returns the stored definition of a job that is defined as data.
func DefinitionOfKind(j Job, kind string, kindRevision int, created string) (json.RawMessage, error) {
	d := definitionOf(j)
	d.Kind, d.KindRevision, d.Created = kind, kindRevision, created
	return d.MarshalJSON()
}
