package jobsfile

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Schema returns the JSON schema of a file. It describes keys and forms of values; rules beyond
// that, such as those of cron texts, are known to Load only.
func Schema() []byte {
	s := objectSchema(fileFields())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "jobs of rota run"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // cannot fail: maps, texts and numbers
	}
	return append(text, '\n')
}

// Reference returns the tables of all keys, in Markdown.
func Reference() string {
	var b strings.Builder
	addTable(&b, "Keys of the file", fileFields())
	addTable(&b, "Keys of a job", jobFields())
	addTable(&b, "Keys of `after`", afterFields())
	addTable(&b, "Keys of `retry`", retryFields())
	addTable(&b, "Keys of `http`", httpFields())
	addTable(&b, "Keys of `http.tls`", tlsFields())
	addTable(&b, "Keys of `registry`", registryFields())
	addTable(&b, "Keys of `registry.tls`", registryTLSFields())
	addTable(&b, "Keys of `history`", historyFields())
	addTable(&b, "Keys of `history.tls`", registryTLSFields())
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
