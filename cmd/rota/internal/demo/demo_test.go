package demo

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree makes a tree of n files and returns it and the sum of their sizes.
func tree(t *testing.T, n int) (dir string, size int) {
	t.Helper()
	dir = t.TempDir()
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprint(i%7))
		require.NoError(t, os.MkdirAll(sub, 0o755))
		text := strings.Repeat(fmt.Sprintf("line of %d\n", i), i%50)
		require.NoError(t, os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), []byte(text), 0o644))
		size += len(text)
	}
	require.NoError(t, os.Symlink("0", filepath.Join(dir, "link"))) // is no regular file
	return dir, size
}

func options(dir string) demoOptions {
	return demoOptions{instances: 3, shards: 12, kill: 1, ttl: 300 * time.Millisecond, timeout: time.Minute, dir: dir, registry: "memory"}
}

func TestDemo(t *testing.T) {
	dir, size := tree(t, 500)
	for name, c := range map[string]struct {
		change    func(*demoOptions)
		failovers string
	}{
		"one instance is killed":  {func(*demoOptions) {}, `[1-9]\d*`},
		"two are killed":          {func(o *demoOptions) { o.kill = 2 }, `[1-9]\d*`},
		"none is killed":          {func(o *demoOptions) { o.kill = 0 }, `0`},
		"one instance, one shard": {func(o *demoOptions) { o.instances, o.shards, o.kill = 1, 1, 0 }, `0`},
		"more shards than files":  {func(o *demoOptions) { o.shards = 600 }, `[1-9]\d*`},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(dir)
			c.change(&o)
			before := runtime.NumGoroutine()
			var out bytes.Buffer
			require.NoError(t, demo(t.Context(), o, &out), out.String())
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			want := fmt.Sprintf(`^demo ok: shards=%d runs=\d+ failovers=%s lost=0 doubled=0 files=500 bytes=%d$`, o.shards, c.failovers, size)
			assert.Regexp(t, regexp.MustCompile(want), lines[len(lines)-1])
			assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 10*time.Second, 10*time.Millisecond,
				"every goroutine has returned")
		})
	}
}

func TestDemo_Fails(t *testing.T) {
	dir, _ := tree(t, 5)
	for name, c := range map[string]struct {
		change func(*demoOptions)
		want   string
	}{
		"no instance is left":   {func(o *demoOptions) { o.kill = 3 }, "--kill is 3, not below the 3 of --instances"},
		"more kills than runs":  {func(o *demoOptions) { o.shards, o.kill = 1, 2 }, "--kill is 2"},
		"no such registry":      {func(o *demoOptions) { o.registry = "consul://a:1" }, "the scheme must be etcd:// or zk://"},
		"no such directory":     {func(o *demoOptions) { o.dir = filepath.Join(dir, "no") }, "is not a directory"},
		"a tree without a file": {func(o *demoOptions) { o.dir = t.TempDir() }, "there are none"},
		"out of time":           {func(o *demoOptions) { o.timeout = time.Nanosecond }, "not done after 1ns"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(dir)
			c.change(&o)
			err := demo(t.Context(), o, &bytes.Buffer{})
			require.ErrorContains(t, err, c.want)
			assert.True(t, strings.HasPrefix(err.Error(), "demo failed: "), err)
		})
	}
}

func TestDemo_DrawsOverItsTable(t *testing.T) {
	var out bytes.Buffer
	s := newStory(newBoard(3, 0))
	for range 3 {
		(&table{out: &out, live: true, lines: 2}).draw(s)
	}
	assert.Equal(t, 3, strings.Count(out.String(), "\x1b[2A"))
}
