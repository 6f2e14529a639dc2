package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
)

// minPatch is the lowest accepted patch level per release line. Older lines are refused, newer
// ones accepted.
//
// 3.5.13 stopped revoking leases that a new leader has renewed. 3.5.18 stopped losing a
// deletion on its way to a watcher. 3.5.28 and 3.6.9 stopped answering a read that was in
// progress when the server was paused with outdated data.
var minPatch = map[[2]int]int{{3, 5}: 28, {3, 6}: 9}

var newestLine = [2]int{3, 6}

// checkVersion returns an error if a server of that version is refused.
func checkVersion(version string) error {
	var major, minor, patch int
	core, _, _ := strings.Cut(version, "-") // without a pre-release suffix
	parts := strings.Split(core, ".")
	if len(parts) != 3 {
		return fmt.Errorf("version %q is malformed", version)
	}
	for i, n := range []*int{&major, &minor, &patch} {
		var err error
		if *n, err = strconv.Atoi(parts[i]); err != nil {
			return fmt.Errorf("version %q is malformed: %w", version, err)
		}
	}
	line := [2]int{major, minor}
	floor, known := minPatch[line]
	if known && patch >= floor || major > newestLine[0] || major == newestLine[0] && minor > newestLine[1] {
		return nil
	}
	return fmt.Errorf("version %s has bugs that break sessions, watches or reads; 3.5.28, 3.6.9 and 3.7 do not", version)
}

// statusTimeout bounds the version request, so that a member that is down does not delay Open
// for long.
const statusTimeout = time.Second

// checkVersions requests the version of every member and fails if one of those that answer is
// refused.
func (c *Client) checkVersions(ctx context.Context, l *link) error {
	if c.options.AnyVersion {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	errs := make([]error, len(c.options.Endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range c.options.Endpoints {
		wg.Go(func() { errs[i] = c.checkMemberVersion(ctx, l, endpoint) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *Client) checkMemberVersion(ctx context.Context, l *link, endpoint string) error {
	resp, err := l.etcd.Status(ctx, endpoint)
	if err != nil {
		c.log.LogAttrs(ctx, slog.LevelWarn, "cannot read the version of a member",
			slog.String("endpoint", endpoint), errorAttr(translate(err)))
		return nil
	}
	if err := checkVersion(resp.Version); err != nil {
		return fmt.Errorf("%s: %w", endpoint, err)
	}
	return nil
}
