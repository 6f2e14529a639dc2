package layout

import (
	"fmt"
	"path"
	"strings"
)

// modulesShareVersions finds versions in the modules of the workspace that differ from those that the root requires. Packages that
// import them, such as those of etcd's client, are built twice otherwise.
func modulesShareVersions(tr *tree) (faults []string) {
	required := versions(tr.files["go.mod"])
	for _, p := range tr.paths() {
		if path.Base(p) != "go.mod" || tr.inOtherModule(p) {
			continue
		}
		for module, version := range versions(tr.files[p]) {
			if want, ok := required[module]; ok && version != want {
				faults = append(faults, fmt.Sprintf("%s: requires %s %s, and the root %s", p, module, version, want))
			}
		}
	}
	return faults
}

// versions returns the versions that a go.mod requires, by the paths of the modules.
func versions(mod []byte) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(string(mod)) {
		if f := strings.Fields(strings.TrimPrefix(line, "require ")); len(f) >= 2 && strings.HasPrefix(f[1], "v") {
			all[f[0]] = f[1]
		}
	}
	return all
}
