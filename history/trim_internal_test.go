package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRowCounts(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	key := func(job string) jobKey { return jobKey{"billing", "default", job} }
	var c rowCounts
	require.Empty(t, c.nextChecks(now))
	c.add(key("settle"))
	require.Equal(t, []jobKey{key("settle")}, c.nextChecks(now), "the first rows of a process: there may be many of others")
	c.add(key("settle"))
	require.Empty(t, c.nextChecks(now.Add(checkEvery-1)))
	require.Equal(t, []jobKey{key("settle")}, c.nextChecks(now.Add(checkEvery)))
	for range checkRows {
		c.add(key("settle"))
	}
	require.Equal(t, []jobKey{key("settle")}, c.nextChecks(now.Add(checkEvery+1)), "many rows")

	for i := range 1000 {
		c.add(key(fmt.Sprint("remind-", i)))
	}
	require.Len(t, c.nextChecks(now.Add(2*checkEvery)), 1000)
	require.Empty(t, c.nextChecks(now.Add(3*checkEvery+1)))
	require.Empty(t, c.jobs, "jobs that write no more are forgotten")
	require.Equal(t, map[jobKey]bool{{"billing", "default", ""}: true}, c.groups, "old rows of the group are deleted all the same")
}
