package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDemo_ListensToEachTopicOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, demo(t.Context(), &out))
		listeners := map[string]string{} // by topic
		var atSteps []int
		for line := range strings.Lines(out.String()) {
			words := strings.Fields(line)
			switch {
			case words[0] == "--":
				atSteps = append(atSteps, len(listeners))
			case words[1] == "listens":
				require.NotContains(t, listeners, words[3], out.String())
				listeners[words[3]] = words[0]
			default:
				require.Equal(t, words[0], listeners[words[2]], out.String())
				delete(listeners, words[2])
			}
		}
		assert.Equal(t, []int{0, 4, 4, 4}, atSteps)
		assert.Empty(t, listeners)
		var byB []string
		for line := range strings.Lines(out.String()) {
			if topic, ok := strings.CutPrefix(strings.TrimSpace(line), "b listens to "); ok {
				byB = append(byB, topic)
			}
		}
		slices.Sort(byB)
		assert.Equal(t, []string{"orders", "payments", "returns", "reviews"}, byB)
	})
}
