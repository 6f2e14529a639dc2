package web

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/operator"
)

// define is the act that has a form for new jobs as well, which asks for the name.
const define = "define"

// defineJob is the name of the form for new jobs.
const defineJob = "define a job"

// jobField asks for the name of a new job.
var jobField = acts.Field{Name: "job", Kind: acts.Text, Label: "Name", Help: "of 1 to 100 bytes, such as acme/report", Required: true}

// fieldsOfDefine returns the fields of a form that defines a new job, or changes one.
func fieldsOfDefine(fields []acts.Field, isNew bool) []acts.Field {
	without := []string{"if_absent"}
	if isNew {
		fields, without = slices.Insert(slices.Clone(fields), 0, jobField), []string{"no_defaults", "keep_params", "if_revision"}
	}
	return slices.DeleteFunc(slices.Clone(fields), func(f acts.Field) bool { return slices.Contains(without, f.Name) })
}

// fillDefine sets the values of a form of define that the query does not set: those on record, or that a new job replaces none.
func (c *Console) fillDefine(r *request, b *actBody) error {
	values := map[string]string{"if_absent": "yes"}
	if b.On != "" {
		ctx, cancel := call(r)
		defer cancel()
		j, err := c.op.Definition(ctx, b.On)
		if errors.Is(err, operator.ErrRegistered) {
			return problemf(http.StatusConflict, "%s is registered in code, so it is not defined as data.", b.On)
		}
		if err == nil && j.State == operator.DefinedDeleting {
			err = operator.ErrUnknownJob
		}
		if err != nil {
			return err
		}
		values = acts.FormOf(&j)
	}
	maps.Copy(values, b.Values)
	b.Values = values
	return nil
}
