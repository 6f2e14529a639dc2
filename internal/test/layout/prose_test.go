package layout

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"strings"
)

// habits are patterns of sentences that readers stumbled over, with how often each may occur per
// 1,000 words of comments and documents. A pattern is a proxy, so the bound is not zero.
var habits = []struct {
	name    string
	pattern *regexp.Regexp
	most    float64
}{
	{
		"a clause stands where a noun should", // "What is kept decides nothing."
		regexp.MustCompile(`(?:^|[.:;(]\s)(?i:what|who|whoever|whatever|whose)\s+(?:is|are|was|were|has|have|had|it|they|a|an|the|others|runs|may|can|will|does|gets|joins|leaves|owns|waits|reads|writes)\b`),
		0.5,
	},
	{
		"data is said to speak", // "The record tells its owner."
		regexp.MustCompile(`\b(?:tells?|told|says?|said|hears?|heard)\b`),
		1.5,
	},
	{
		"an indefinite person acts", // "nobody owns the shard"
		regexp.MustCompile(`\b(?i:nobody|somebody)\b`),
		0.2,
	},
}

// checkProse counts the habits over the comments of all Go files but tests, and the documents.
func checkProse(tr *tree) (faults []string) {
	words := 0
	hits := make([][]string, len(habits))
	read := func(where, line string) {
		words += len(strings.Fields(line))
		for i, h := range habits {
			for range h.pattern.FindAllString(line, -1) {
				hits[i] = append(hits[i], fmt.Sprintf("%s: %s", where, strings.TrimSpace(line)))
			}
		}
	}
	for _, s := range tr.sources {
		if s.isTest() {
			continue
		}
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				readComment(s, c, read)
			}
		}
	}
	for _, p := range tr.documents() {
		if path.Base(p) == "CHANGELOG.md" {
			continue // it keeps what was written
		}
		for n, line := range strings.Split(string(tr.files[p]), "\n") {
			read(fmt.Sprintf("%s:%d", p, n+1), line)
		}
	}
	for i, h := range habits {
		if rate := float64(len(hits[i])) * 1000 / float64(max(words, 1)); rate > h.most {
			faults = append(faults, fmt.Sprintf("%s %.1f times in 1,000 words, at most %.1f:\n\t%s",
				h.name, rate, h.most, strings.Join(hits[i], "\n\t")))
		}
	}
	return faults
}

func readComment(s source, c *ast.Comment, read func(where, line string)) {
	read(s.position(c), strings.TrimPrefix(c.Text, "//"))
}
