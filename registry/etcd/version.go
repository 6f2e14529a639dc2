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

// floors are the patch levels of release lines below which a server is refused. Older
// lines are refused whole, newer ones have no floor.
//
// 3.5.13 no longer revokes leases that a new leader has renewed, 3.5.18 no longer loses a
// deletion on its way to a watcher, and 3.5.28 and 3.6.9 no longer answer a read that was
// under way during a pause of the server with what was true before it.
var floors = map[[2]int]int{{3, 5}: 28, {3, 6}: 9}

var newest = [2]int{3, 6}

// checkVersion returns why a server of that version is refused, or nil.
func checkVersion(version string) error {
	var major, minor, patch int
	core, _, _ := strings.Cut(version, "-") // without the mark of a pre-release
	parts := strings.Split(core, ".")
	if len(parts) != 3 {
		return fmt.Errorf("version %q cannot be read", version)
	}
	for i, n := range []*int{&major, &minor, &patch} {
		var err error
		if *n, err = strconv.Atoi(parts[i]); err != nil {
			return fmt.Errorf("version %q cannot be read: %w", version, err)
		}
	}
	line := [2]int{major, minor}
	floor, known := floors[line]
	if known && patch >= floor || major > newest[0] || major == newest[0] && minor > newest[1] {
		return nil
	}
	return fmt.Errorf("version %s has bugs that break sessions, watches or reads; 3.5.28, 3.6.9 and 3.7 do not", version)
}

// statusTimeout is for members that are down: they do not keep others from being used.
const statusTimeout = time.Second

// checkVersions asks each member for its version, and fails if one of those that answer is
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
		wg.Go(func() { errs[i] = c.checkMember(ctx, l, endpoint) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *Client) checkMember(ctx context.Context, l *link, endpoint string) error {
	resp, err := l.etcd.Status(ctx, endpoint)
	if err != nil {
		c.log.LogAttrs(ctx, slog.LevelWarn, "a member does not tell its version",
			slog.String("endpoint", endpoint), cause(translate(err)))
		return nil
	}
	if err := checkVersion(resp.Version); err != nil {
		return fmt.Errorf("%s: %w", endpoint, err)
	}
	return nil
}
