package jobsfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// compileSchema returns the schema as a validator of another author reads it.
func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("schema.json", doc))
	s, err := c.Compile("schema.json")
	require.NoError(t, err)
	return s
}

// asJSON returns a value of YAML as one of JSON.
func asJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = asJSON(v[k])
		}
	case map[any]any:
		m := map[string]any{}
		for k := range v {
			m[fmt.Sprint(k)] = asJSON(v[k])
		}
		return m
	case []any:
		for i := range v {
			v[i] = asJSON(v[i])
		}
	case time.Time:
		return v.Format(time.RFC3339)
	}
	return v
}

func validate(t *testing.T, s *jsonschema.Schema, content []byte) error {
	t.Helper()
	var v any
	if err := yaml.Load(content, &v); err != nil {
		return err
	}
	return s.Validate(asJSON(v))
}

func TestSchema_AcceptsGoodFiles(t *testing.T) {
	s := compileSchema(t)
	good, err := filepath.Glob("testdata/good/*.yaml")
	require.NoError(t, err)
	examples, err := filepath.Glob("../../../../examples/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	for _, path := range append(good, examples...) {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.NoError(t, validate(t, s, content), path)
	}
}

// beyondSchema are the bad files all of whose problems are of rules that only Load knows: those of
// package executor, those that depend on the host, and those about the form of the YAML.
var beyondSchema = []string{
	"alias", "default-for-some-jobs", "history-credentials", "history-file", "history-lines", "history-tilde", "history-user", "history-url", "long-texts", "merge-key", "notify-addresses", "program-missing", "quartz-text", "registry-credentials", "tag", "templates",
}

func TestSchema_RejectsBadFiles(t *testing.T) {
	s := compileSchema(t)
	for _, path := range badFiles(t) {
		content, _ := splitBad(t, path)
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if err := validate(t, s, content); (err == nil) != slices.Contains(beyondSchema, name) {
			t.Errorf("%s: the schema returns: %v", name, err)
		}
	}
}

// reference returns the tables of all keys, in Markdown.
func reference() string {
	var b strings.Builder
	addTable(&b, "Keys of the file", fileFields())
	addTable(&b, "Keys of a job", jobFields())
	addTable(&b, "Own keys of a kind", ownKindFields())
	addTable(&b, "Keys of `after`", afterFields())
	addTable(&b, "Keys of `retry`", retryFields())
	addTable(&b, "Keys of `http`", httpFields())
	addTable(&b, "Keys of `http.tls`", tlsFields())
	addTable(&b, "Keys of `registry`", registryFields())
	addTable(&b, "Keys of `registry.tls`", registryTLSFields())
	addTable(&b, "Keys of `history`", historyFields())
	addTable(&b, "Keys of `history.tls`", registryTLSFields())
	addTable(&b, "Keys of `notify`", notifyFields())
	addTable(&b, "Keys of a receiver", receiverFields())
	addTable(&b, "Keys of `webhook`", webhookFields())
	addTable(&b, "Keys of `mail`", mailFields())
	return b.String()
}

func addTable[T any](b *strings.Builder, title string, fields []field[T]) {
	fmt.Fprintf(b, "## %s\n\n| key | value | default | meaning |\n|---|---|---|---|\n", title)
	for _, f := range fields {
		if f.hidden {
			continue
		}
		standard, doc := f.standard, f.doc
		if f.required {
			standard = "required"
		}
		if f.with != nil {
			doc += " With `" + strings.Join(f.with, "`, `") + "`."
		}
		if f.inDefaults {
			doc += " May be in `defaults`."
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.name, f.text, standard, doc)
	}
	b.WriteString("\n")
}

func TestTables_AreInTheDocument(t *testing.T) {
	const path, from, to = "../../../../docs/jobs-file/keys.md", "<!-- The tables are generated: go test ./internal/jobsfile -update in cmd/rota -->\n\n", "<!-- End of the tables. -->\n"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), from)
	_, after, ended := strings.Cut(rest, to)
	require.True(t, found && ended, "the marks of the tables")
	whole := before + from + reference() + to + after
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(whole), 0o644))
		return
	}
	assert.Equal(t, whole, string(page))
}

// The files that rota import writes are valid, apart from what their notes leave to the user.
func TestLoad_AcceptsImportedFiles(t *testing.T) {
	s := compileSchema(t)
	for pattern, left := range map[string][]string{
		"*.crontab.yaml": nil,
		"*.jobs.yaml":    {": has no work: ", ".shards: 20000 is not from 1 to 10000"},
	} {
		paths, err := filepath.Glob("../importing/testdata/" + pattern)
		require.NoError(t, err)
		require.NotEmpty(t, paths)
		for _, path := range paths {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			if left == nil {
				assert.NoError(t, validate(t, s, content), path)
			}
			_, err = Load(path, content, Host{})
			var problems *Problems
			if !errors.As(err, &problems) {
				assert.NoError(t, err)
				continue
			}
			for _, line := range strings.Split(err.Error(), "\n") {
				assert.True(t, slices.ContainsFunc(left, func(known string) bool { return strings.Contains(line, known) }), line)
			}
		}
	}
}
