package browsertest

import (
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/web"
)

var screenshotsFlag = flag.String("screenshots", "", "`directory` that TestScreenshots writes its pictures into; by default a temporary one")

// screenshots are pages of a fixed fleet, for documents.
var screenshots = []struct {
	name, path string
	look       look
}{
	{"fleet", "", look{}},
	{"job", "jobs/tenants", look{}},
	{"instances", "instances", look{dark: true}},
	{"act", "jobs/settle/act/trigger", look{phone: true}},
}

// TestScreenshots makes a picture of each of four pages. What they show is in their texts, which other tests compare.
func TestScreenshots(t *testing.T) {
	dir := *screenshotsFlag
	if dir == "" {
		dir = t.TempDir()
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	at := startFleet(t).mount(t, web.Admin)
	for _, s := range screenshots {
		t.Run(s.name, func(t *testing.T) {
			b := openTab(t, s.look)
			require.EqualValues(t, http.StatusOK, b.visit(at+s.path))
			picture := run(b, chromedp.FullScreenshot(100))
			assert.Equal(t, "\x89PNG", string(picture[:4]))
			require.NoError(t, os.WriteFile(filepath.Join(dir, s.name+".png"), picture, 0o644))
		})
	}
}
