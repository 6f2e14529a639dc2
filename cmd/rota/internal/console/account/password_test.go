package account

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// usersOf returns users whose names are those of their costs' keys.
func usersOf(t *testing.T, costs map[string]int) *Users {
	t.Helper()
	text := "users:\n"
	for name, cost := range costs {
		text += "- {name: " + name + ", roles: {a: look}"
		if cost > 0 {
			text += ", hash: " + hashOf(cost)
		}
		text += "}\n"
	}
	users, err := ParseUsers([]byte(text))
	require.NoError(t, err)
	return users
}

func TestHash(t *testing.T) {
	for _, password := range []string{"", strings.Repeat("x", minPasswordBytes-1), strings.Repeat("x", maxPasswordBytes+1)} {
		_, err := Hash(password)
		assert.Error(t, err, "%d bytes", len(password))
	}
	hash, err := Hash("correct horse")
	require.NoError(t, err)
	users, err := ParseUsers([]byte("users:\n- {name: kim, hash: " + hash + ", roles: {a: look}}"))
	require.NoError(t, err)
	c := NewChecker()
	user, err := c.Check(t.Context(), users, "kim", "correct horse", "here")
	require.NoError(t, err)
	assert.Equal(t, "kim", user.Name)
	_, err = c.Check(t.Context(), users, "kim", "correct horsf", "here")
	assert.ErrorIs(t, err, ErrWrong)
}

// The check of a password costs the same for all names, so that its time does not show which exist.
func TestCheck_TakesTheSameTimeForAll(t *testing.T) {
	users := usersOf(t, map[string]int{"cheap": 10, "dear": 13, "none": 0})
	for name, password := range map[string]string{"cheap": "x", "dear": "y", "unknown": "z", "none": "", "": "a", strings.Repeat("n", 100): "b"} {
		for _, password := range []string{password, strings.Repeat("p", 100)} {
			work := 0
			c := NewChecker()
			c.Compare = func(hash, _ []byte) error {
				cost, err := bcrypt.Cost(hash)
				require.NoError(t, err)
				work += 1 << cost
				return bcrypt.ErrMismatchedHashAndPassword
			}
			_, err := c.Check(t.Context(), users, name, password, "here")
			assert.ErrorIs(t, err, ErrWrong)
			assert.Equal(t, 1<<13, work, "%.10q with %d bytes", name, len(password))
		}
	}
	_, err := bcrypt.Cost(dummyHash(13))
	require.NoError(t, err)
	assert.ErrorIs(t, bcrypt.CompareHashAndPassword(dummyHash(bcrypt.MinCost), []byte("x")), bcrypt.ErrMismatchedHashAndPassword, "the dummy is well-formed")
}

func TestCheck_LimitsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := usersOf(t, map[string]int{"kim": 10, "lee": 10})
		right := false
		c := NewChecker()
		c.Compare = func(_, _ []byte) error {
			if right {
				return nil
			}
			return bcrypt.ErrMismatchedHashAndPassword
		}
		try := func(name, place string) error {
			_, err := c.Check(t.Context(), users, name, "x", place)
			return err
		}
		for i := range attemptsOfName {
			require.ErrorIs(t, try("kim", fmt.Sprint("place ", i)), ErrWrong)
		}
		var limited *LimitedError
		require.ErrorAs(t, try("kim", "another"), &limited, "the attempts of a name are limited, wherever they come from")
		assert.Equal(t, nameInterval, limited.Wait)
		right = true
		require.ErrorAs(t, try("kim", "another"), &limited, "also with the right password")
		time.Sleep(limited.Wait)
		require.NoError(t, try("kim", "another"))
		require.NoError(t, try("kim", "another"), "a login takes no attempt away")
		require.NoError(t, try("lee", "another"))

		right = false
		for i := range attemptsOfPlace {
			require.ErrorIs(t, try(fmt.Sprint("user ", i), "hostile"), ErrWrong)
		}
		for range 100 {
			require.ErrorAs(t, try("lee", "hostile"), &limited, "the attempts of a place are limited, whatever the name")
		}
		right = true
		require.NoError(t, try("lee", "another"), "the attempts beyond the limit of a place do not count for the name")
	})
}

// However many users log in, one password is checked at a time, and few wait.
func TestCheck_UsesOneCPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := usersOf(t, map[string]int{"kim": 10})
		c := NewChecker()
		running, most := 0, 0
		c.Compare = func(_, _ []byte) error {
			running++ // without a lock: the race detector reports two at a time
			most = max(most, running)
			time.Sleep(time.Second)
			running--
			return nil
		}
		results := make(chan error, 100)
		begin := time.Now()
		for i := range cap(results) {
			go func() {
				_, err := c.Check(t.Context(), users, fmt.Sprint("user ", i), "x", fmt.Sprint("place ", i))
				results <- err
			}()
		}
		busy := 0
		for range cap(results) {
			err := <-results
			if err == ErrBusy {
				busy++
				assert.Zero(t, time.Since(begin), "refused at once")
			}
		}
		assert.Equal(t, 1, most)
		assert.Equal(t, cap(results)-maxWaiting-1, busy)
		assert.Equal(t, (maxWaiting+1)*time.Second, time.Since(begin))

		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = c.Check(t.Context(), users, "kim", "x", "here") }()
		synctest.Wait()
		cancel()
		_, err := c.Check(ctx, users, "kim", "x", "here")
		assert.ErrorIs(t, err, context.Canceled, "a browser that has gone does not wait")
		time.Sleep(time.Minute)
	})
}

func TestLimits_AreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(3, time.Second)
		for range 3 {
			require.Zero(t, l.take("victim"))
		}
		require.NotZero(t, l.take("victim"))
		for i := range 2 * maxLimited {
			require.Zero(t, l.take(fmt.Sprint(i)))
			require.LessOrEqual(t, len(l.full), maxLimited)
		}
		assert.NotZero(t, l.take("victim"), "the keys with the most attempts left are forgotten first")
		time.Sleep(time.Hour)
		require.Zero(t, l.take("one"))
		assert.Len(t, l.full, 1, "those with all attempts left are forgotten")
	})
}
