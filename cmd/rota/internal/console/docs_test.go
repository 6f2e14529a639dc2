package console

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/console/account"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/web"
)

// The page about rota web shows command lines and a file of users that are accepted.
func TestPage_ShowsWhatIsAccepted(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/console/serve.md")
	require.NoError(t, err)
	var yaml string
	lines := 0
	for _, block := range regexp.MustCompile("(?s)```(sh|yaml|ini)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if block[1] == "yaml" && strings.HasPrefix(block[2], "notify:") {
			_, err := jobsfile.LoadNotify("f", []byte(block[2]), jobsfile.Host{})
			require.NoError(t, err)
			continue
		}
		if block[1] == "yaml" {
			yaml += block[2]
			continue
		}
		for _, line := range regexp.MustCompile(`(?m)^(?:ExecStart=\S*/)?rota (web.*)$`).FindAllStringSubmatch(block[2], -1) {
			args, _, _ := strings.Cut(line[1], "#")
			lines++
			cmd, rest, err := withFlags(settingsOf(t, nil)).Find(strings.Fields(args))
			require.NoError(t, err)
			require.NoError(t, cmd.ParseFlags(rest))
			if cmd.Name() != "web" {
				continue
			}
			value := func(name string) string { return cmd.Flags().Lookup(name).Value.String() }
			from, err := cmd.Flags().GetStringSlice("proxy-from")
			require.NoError(t, err)
			o := options{
				listen: value("listen"), path: value("path"), users: value("users"), tlsCert: value("tls-cert"), tlsKey: value("tls-key"),
				proxyHeader: value("proxy-header"), proxyRoles: value("proxy-roles"), proxyFrom: from,
			}
			assert.NoError(t, o.check(), args)
		}
	}
	assert.Equal(t, 6, lines)
	users, err := account.ParseUsers([]byte(yaml))
	require.NoError(t, err)
	kim, _ := users.Find("kim")
	assert.Equal(t, web.Admin, kim.Roles.In("billing"))
	assert.True(t, users.HaveTokens())
}
