package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/view"
)

// describe returns the document of the routes, by OpenAPI 3.1. A test writes it to openapi.json.
func describe(routes []route, closed bool) schema {
	defs := &definitions{schemas: map[string]any{}, types: map[string]reflect.Type{}, closed: closed}
	problem := schema{"description": "a problem", "content": schema{"application/problem+json": schema{"schema": schemaOf(reflect.TypeFor[Problem](), defs)}}}
	types := []string{}
	for _, k := range kinds {
		types = append(types, problemTypes+k.name)
	}
	defs.schemas["Problem"].(schema)["properties"].(map[string]any)["type"] = schema{"type": "string", "enum": types}
	paths := schema{}
	for i := range routes {
		rt := &routes[i]
		item, _ := paths[rt.path].(schema)
		if item == nil {
			item = schema{}
			paths[rt.path] = item
		}
		answer := schema{}
		if rt.answer != nil {
			answer = schemaOf(rt.answer, defs)
		}
		operation := schema{
			"summary":   rt.short,
			"x-level":   rt.needs.String(),
			"responses": schema{"200": schema{"description": "done", "content": schema{rt.media: schema{"schema": answer}}}, "default": problem},
		}
		parameters := describeParameters(rt)
		if rt.verb != nil {
			operation["requestBody"] = schema{"required": true, "content": schema{"application/json": schema{"schema": bodyOf(rt.verb, defs)}}}
			parameters = append(parameters, schema{
				"name": "Idempotency-Key", "in": "header", "description": "a repetition with the same key is answered as the first request was, and does nothing",
				"schema": schema{"type": "string", "maxLength": 255},
			})
		} else if rt.answer != nil {
			parameters = append(parameters, schema{"name": "If-None-Match", "in": "header", "description": "an ETag: the answer is 304 if it has not changed", "schema": schema{"type": "string"}})
			operation["responses"].(schema)["304"] = schema{"description": "not changed"}
		}
		if len(parameters) > 0 {
			operation["parameters"] = parameters
		}
		item[strings.ToLower(rt.method)] = operation
	}
	return schema{
		"openapi":    "3.1.0",
		"info":       schema{"title": "rota", "version": "1", "description": "The JSON of the command rota, for looks and acts."},
		"servers":    []any{schema{"url": "../v1", "description": "relative to this document"}},
		"paths":      paths,
		"components": schema{"schemas": defs.schemas},
	}
}

// parameterSchemas are the schemas of the types of parameters with a form of their own.
var parameterSchemas = map[reflect.Type]schema{
	reflect.TypeFor[age]():      {"type": "string", "examples": []any{"90m", "7d"}},
	reflect.TypeFor[shards]():   {"type": "string", "examples": []any{"3,7-9"}},
	reflect.TypeFor[jobState](): {"type": "string", "enum": view.JobStates},
	reflect.TypeFor[glob]():     {"type": "string"},
}

// describeParameters returns the parameters of a route in its path and its query.
func describeParameters(rt *route) (out []any) {
	for segment := range strings.SplitSeq(rt.path, "/") {
		if name, found := strings.CutPrefix(segment, "{"); found {
			out = append(out, schema{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": schema{"type": "string"}})
		}
	}
	for _, f := range parameters(rt.query) {
		s := maps.Clone(parameterSchemas[f.Type])
		if s == nil {
			s = schemaOf(f.Type, nil)
		}
		for _, key := range []string{"default", "min", "max"} {
			value, set := f.Tag.Lookup(key)
			if !set {
				continue
			}
			if n, err := strconv.Atoi(value); err == nil {
				s[map[string]string{"default": "default", "min": "minimum", "max": "maximum"}[key]] = n
			} else {
				s[key] = value
			}
		}
		out = append(out, schema{"name": f.Tag.Get("query"), "in": "query", "description": f.Tag.Get("doc"), "schema": s})
	}
	return out
}

// bodyOf returns the schema of the body of an act.
func bodyOf(v *acts.Verb, defs *definitions) schema {
	properties, required := map[string]any{reasonField: schema{"type": "string", "description": "why, for the record of acts"}}, []string{}
	for _, f := range v.Fields {
		value, ok := requestField(reflect.ValueOf(&acts.Request{}).Elem(), f.Name)
		if !ok {
			continue
		}
		s := schemaOf(value.Type(), defs)
		if s["description"] = f.Label; f.Help != "" {
			s["description"] = f.Label + ": " + f.Help
		}
		if f.Secret {
			s["writeOnly"] = true
		}
		properties[f.Name] = s
		if f.Required {
			required = append(required, f.Name)
		}
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

var update = flag.Bool("update", false, "write openapi.json")

func TestOpenAPI(t *testing.T) {
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(describe(routesOf(acts.Verbs), false)))
	if *update {
		require.NoError(t, os.WriteFile("openapi.json", want.Bytes(), 0o644))
		return
	}
	assert.Equal(t, want.String(), readFile(t, "openapi.json"), "go test -run TestOpenAPI -update writes the file")
	h := New(Config{Authorize: authorize, Verbs: acts.Verbs})
	assert.Equal(t, want.String(), read(t, serve(h, request("GET", "/openapi.json", ""))))
}

// answers are the compiled schemas of answers, which allow no field that they do not have.
type answers struct{ compiler *jsonschema.Compiler }

func compileAnswers(t *testing.T) answers {
	t.Helper()
	text, err := json.Marshal(describe(routesOf(verbs), true))
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	require.NoError(t, c.AddResource("openapi.json", doc))
	return answers{c}
}

// validate checks a body by the schema of the answer of a route.
func (a answers) validate(t *testing.T, rt *route, body string) {
	t.Helper()
	pointer := strings.NewReplacer("~", "~0", "/", "~1").Replace(rt.path)
	s, err := a.compiler.Compile("openapi.json#/paths/" + url.PathEscape(pointer) + "/" + strings.ToLower(rt.method) + "/responses/200/content/application~1json/schema")
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	require.NoError(t, err)
	assert.NoError(t, s.Validate(v), "%s: %s", rt.path, body)
}

// The schemas refuse answers of another form.
func TestOpenAPI_RefusesOtherAnswers(t *testing.T) {
	a := compileAnswers(t)
	for _, body := range []string{
		`{}`, `[]`, `{"version":"1","verb":"x","jobs":[],"text":""}`, `{"version":1,"verb":"x","jobs":[7],"text":""}`,
		`{"version":1,"verb":"x","jobs":[],"text":"","more":1}`, `{"version":1,"verb":"x","jobs":[],"text":"","fires":["noon"]}`,
	} {
		s, err := a.compiler.Compile("openapi.json#/components/schemas/Done")
		require.NoError(t, err)
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		require.NoError(t, err)
		assert.Error(t, s.Validate(v), body)
	}
}

// Each body of an act that the tests send is one that openapi.json allows.
func TestOpenAPI_AllowsTheBodies(t *testing.T) {
	a := compileAnswers(t)
	for path, body := range bodies {
		pointer := strings.ReplaceAll(path, "/", "~1")
		s, err := a.compiler.Compile("openapi.json#/paths/" + url.PathEscape(pointer) + "/post/requestBody/content/application~1json/schema")
		require.NoError(t, err)
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		require.NoError(t, err)
		assert.NoError(t, s.Validate(v), path)
		v, err = jsonschema.UnmarshalJSON(strings.NewReader(`{"nonsense":1}`))
		require.NoError(t, err)
		assert.Error(t, s.Validate(v), path)
	}
}
