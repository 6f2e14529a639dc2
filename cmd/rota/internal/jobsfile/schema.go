package jobsfile

import (
	"encoding/json"
)

// Schema returns the JSON schema of a file. It describes keys and forms of values; rules beyond
// that, such as those of cron texts, are known to Load only.
func Schema() []byte {
	s := objectSchema(fileFields())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["anyOf"] = requireEach([]string{"jobs", "kinds"})
	s["title"] = "jobs of rota run"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // cannot fail: maps, texts and numbers
	}
	return append(text, '\n')
}
