package layout

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// tableRow matches a row of README.md's table of directories and takes its path.
var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)/` \\|")

// directoriesAreDocumented wants every directory at the top in the table, and everything
// in the table to be there.
func directoriesAreDocumented(tr *tree) (faults []string) {
	var documented []string
	for _, row := range tableRow.FindAllSubmatch(tr.files["README.md"], -1) {
		dir := string(row[1])
		if !tr.exists(dir) {
			faults = append(faults, fmt.Sprintf("README.md: nothing at %s/", dir))
		}
		top, _, _ := strings.Cut(dir, "/")
		documented = append(documented, top)
	}
	var reported string
	for _, p := range tr.paths() {
		dir, _, below := strings.Cut(p, "/")
		if below && dir != reported && !slices.Contains(documented, dir) {
			faults = append(faults, fmt.Sprintf("%s/: not in README.md's table of directories", dir))
			reported = dir
		}
	}
	return faults
}

// shown matches a Go block in README.md and the comment before it that names its file.
var shown = regexp.MustCompile("(?s)<!-- (\\S+) -->\n```go\n(.*?)```")

const (
	shownFrom = "// README.md shows from here:\n\n"
	shownTo   = "\n// To here.\n"
)

// readmeShowsWhatCompiles wants a file for each Go block in README.md, and the block to
// be what stands in that file between two comments, byte for byte.
func readmeShowsWhatCompiles(tr *tree) (faults []string) {
	readme := tr.files["README.md"]
	blocks := shown.FindAllSubmatch(readme, -1)
	if n := bytes.Count(readme, []byte("```go")); n == 0 || n != len(blocks) {
		faults = append(faults, fmt.Sprintf("README.md: %d Go blocks, of which %d name a file", n, len(blocks)))
	}
	for _, b := range blocks {
		_, rest, from := strings.Cut(string(tr.files[string(b[1])]), shownFrom)
		code, _, to := strings.Cut(rest, shownTo)
		switch {
		case !from || !to:
			faults = append(faults, fmt.Sprintf("%s: no part of it is marked as shown in README.md", b[1]))
		case code != string(b[2]):
			faults = append(faults, fmt.Sprintf("README.md: its block differs from %s", b[1]))
		}
	}
	return faults
}

// link matches a link in a Markdown file and takes its target, without a fragment.
var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

func linksLeadSomewhere(tr *tree) (faults []string) {
	for _, p := range tr.paths() {
		if path.Ext(p) != ".md" {
			continue
		}
		for _, m := range link.FindAllSubmatch(tr.files[p], -1) {
			target := string(m[1])
			if strings.Contains(target, "://") || tr.exists(path.Join(path.Dir(p), target)) {
				continue
			}
			faults = append(faults, fmt.Sprintf("%s: nothing at %s", p, target))
		}
	}
	return faults
}
