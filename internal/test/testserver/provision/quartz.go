package provision

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// quartzPackages contain quartzJars.
var quartzPackages = []string{"libquartz2-java", "libslf4j-java"}

// quartzJars are enough for Quartz's cron expressions, which need no database pool.
var quartzJars = []string{"quartz2", "slf4j-api", "slf4j-nop"}

// Quartz returns the class path of Quartz, for its cron expressions. log, which may be nil, receives a line
// about each slow step.
func Quartz(ctx context.Context, log io.Writer) (string, error) {
	if path := os.Getenv(QuartzVariable); path != "" {
		return path, nil
	}
	if !ignoreSystem() {
		if path, err := quartzPath(systemJars); err == nil {
			return path, nil
		}
	}
	root, err := cachedPackages(ctx, log, "quartz", quartzPackages, func(root string) error {
		_, err := quartzPath(filepath.Join(root, systemJars))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("provide Quartz: %w; %s can name its jars instead", err, QuartzVariable)
	}
	return quartzPath(filepath.Join(root, systemJars))
}

func quartzPath(dir string) (string, error) {
	var jars []string
	for _, name := range quartzJars {
		jar := filepath.Join(dir, name+".jar")
		if !isFile(jar) {
			return "", fmt.Errorf("no file at %s", jar)
		}
		jars = append(jars, jar)
	}
	return strings.Join(jars, string(filepath.ListSeparator)), nil
}
