package spelling

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/test/cost"
)

func TestNearest_AllowsAThirdOfTheLetters(t *testing.T) {
	names := []string{"schedule", "shell"}
	assert.Equal(t, "schedule", Nearest("shedul", names))
	assert.Equal(t, "schedule", Nearest("schedulexxxx", names))
	assert.Empty(t, Nearest("schedulexxxxxx", names))
	assert.Empty(t, Nearest("", []string{"ab"}))
}

func TestNearest_OfALongWordCostsNoMoreThanReadingIt(t *testing.T) {
	names := strings.Fields(strings.Repeat("description ", 40))
	word := strings.Repeat("x", 1<<20) // as long as a jobs file
	assert.Less(t, cost.Least(1, func() { Nearest(word, names) }), 16*cost.Unit())
}
