package main

import (
	"testing"

	"github.com/rota-dev/rota/rotatest"
)

func TestEachShardRunsOncePerFire(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		f.Start("a", pollJob)
		f.Start("b", pollJob)
		f.NextFire("poll")
		f.NextFire("poll")
		if n := len(f.Runs("poll")); n != 8 {
			t.Errorf("%d runs of 4 shards for 2 fires", n)
		}
	})
}
