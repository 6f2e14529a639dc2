package licences

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNotices_AreThoseOfTheLinkedModules(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "release") // the binary of a test has no list of its modules
	out, err := exec.Command("go", "build", "-o", binary, "rota/release").CombinedOutput()
	require.NoError(t, err, string(out))
	env, err := exec.Command("go", "env", "GOMODCACHE", "GOROOT").Output()
	require.NoError(t, err)
	dirs := strings.Fields(string(env))
	text, err := Notices(binary, "example.org/none", dirs[0], dirs[1])
	require.NoError(t, err)
	for _, want := range []string{"==== Go go1.", "==== github.com/google/licensecheck v0.", "==== github.com/goreleaser/nfpm/v2 v2.", "MIT License", "Redistribution and use"} {
		assert.Contains(t, text, want)
	}
	text, err = Notices(binary, "github.com/google", dirs[0], dirs[1])
	require.NoError(t, err)
	assert.NotContains(t, text, "==== github.com/google/licensecheck")
	_, err = Notices(binary, "example.org/none", t.TempDir(), dirs[1])
	require.ErrorContains(t, err, "no licence in")
}
