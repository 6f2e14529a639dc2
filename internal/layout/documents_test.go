package layout

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// tableRow matches a row of README.md's table of directories and takes its path.
var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)/` \\|")

func directoriesAreDocumented(tr *tree) (faults []string) {
	var documented []string
	for _, row := range tableRow.FindAllSubmatch(tr.files["README.md"], -1) {
		first, _, _ := strings.Cut(string(row[1]), "/")
		documented = append(documented, first)
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
