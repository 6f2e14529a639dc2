package member

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/registry"
)

func TestNewNameTakenError(t *testing.T) {
	for record, want := range map[string]string{
		`{"session":"s","pid":7,"host":"rack-7","started":"2026-05-04T03:02:01.5Z"}`: `process 7 on host "rack-7" has held it since 2026-05-04T03:02:01Z, and kept it for 12s`,
		`{"session":"s","host":"rack-7"}`:                                            `an instance on host "rack-7" has held it, and`,
		`{"session":"s"}`:                                                            "an instance has held it, and",
		`spoilt`:                                                                     "instance name taken: another writer has stored a record at /i/~a that cannot be read (delete the key, or choose another name), and",
	} {
		t.Run("names the holder of "+record, func(t *testing.T) {
			err := newNameTakenError("a", registry.Entry{Key: "/i/~a", Value: []byte(record)}, 12*time.Second)
			assert.ErrorIs(t, err, ErrNameTaken)
			assert.ErrorContains(t, err, want)
		})
	}
}
