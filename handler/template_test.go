package handler

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
)

func TestTemplate_UnknownFieldsAreFoundWithoutARun(t *testing.T) {
	for _, sound := range []string{
		"", "plain", "{{.ID}} {{.Key}} {{.Job}} {{.Instance}} {{.Shard}} {{.Shards}} {{.Param}} {{.ShardParam}} {{.FireTime}} {{.Attempt}} {{.Retries}} {{.Reason}} {{.Trigger}} {{.Fence}}",
		"{{.FireTime.Unix}} {{.FireTime.UTC.Weekday}}", "{{with .Param}}{{.}}{{else}}{{.Shard}}{{end}}", "{{if .Param}}{{.Shard}}{{end}}",
		"{{$s := .Shard}}{{$s}}", "{{range .Shards}}{{.}} {{$.Shard}}{{end}}", "{{printf \"%03d\" .Shard | len}}", "{{(.FireTime.UTC).Year}}", "{{json .}}",
	} {
		tmpl, err := parseTemplate("x", sound)
		if assert.NoError(t, err, sound) {
			_, err = render(tmpl, viewOf(run()))
			assert.NoError(t, err, sound)
		}
	}
	for _, wrong := range []struct{ text, want string }{
		{"{{.Shrad}}", "a run has no .Shrad"},
		{"{{.FireTime.Fromat 1}}", "a run has no .FireTime.Fromat"},
		{"{{.Param.X}}", "a run has no .Param.X"},
		{"{{if .X}}{{end}}", "a run has no .X"},
		{"{{if .Param}}{{.X}}{{end}}", "a run has no .X"},
		{"{{if .Param}}{{else}}{{.X}}{{end}}", "a run has no .X"},
		{"{{with .X}}{{end}}", "a run has no .X"},
		{"{{with .Param}}{{$.X}}{{end}}", "a run has no .X"},
		{"{{with .Param}}{{else}}{{.X}}{{end}}", "a run has no .X"},
		{"{{range .X}}{{end}}", "a run has no .X"},
		{"{{printf \"%s\" .X}}", "a run has no .X"},
		{"{{.Shard | printf .X}}", "a run has no .X"},
		{"{{(.X).Y}}", "a run has no .X"},
		{"{{$x := .X}}", "a run has no .X"},
		{"{{.Commit}}", "a run has no .Commit"}, // a template acts on nothing
		{"{{nothing}}", "function \"nothing\" not defined"},
		{"{{", "unclosed action"},
	} {
		_, err := parseTemplate("Body", wrong.text)
		assert.ErrorContains(t, err, wrong.want, wrong.text)
		assert.ErrorContains(t, err, "template: Body:", wrong.text)
	}
}

func TestTemplate_ParametersAreNotTemplates(t *testing.T) {
	tmpl, err := parseTemplate("x", "{{.Param}}|{{.ShardParam}}")
	require.NoError(t, err)
	for _, param := range hostile {
		got, err := render(tmpl, viewOf(&executor.Run{RunInfo: executor.RunInfo{Param: param, ShardParam: param}}))
		assert.NoError(t, err)
		assert.Equal(t, param+"|"+param, got)
	}
}
