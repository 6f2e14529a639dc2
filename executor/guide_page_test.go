package executor_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/zookeeper"
)

func TestGuidePage_HasEverySetting(t *testing.T) {
	page, err := os.ReadFile("../docs/guide/settings.md")
	require.NoError(t, err)
	var documented []string
	row := regexp.MustCompile("(?m)^\\| ((?:`[A-Za-z.]+`(?:, )?)+) \\|")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		prefix := "" // of names without one in a row
		for name := range strings.SplitSeq(strings.ReplaceAll(m[1], "`", ""), ", ") {
			if dot := strings.LastIndex(name, "."); dot > 0 {
				prefix, name = name[:dot+1], name[dot+1:]
			}
			if prefix != "" && prefix != "postgres.Options." { // another module, with a test of its own
				documented = append(documented, prefix+name)
			}
		}
	}
	var settings []string
	for prefix, options := range map[string]any{
		"Options.": executor.Options{}, "Job.": executor.Job{}, "Kind.": executor.Kind{},
		"etcd.Options.": etcd.Options{}, "zookeeper.Options.": zookeeper.Options{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(options)) {
			settings = append(settings, prefix+f.Name)
		}
	}
	slices.Sort(settings)
	slices.Sort(documented)
	assert.Equal(t, settings, documented)
}
