package account

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func inBubble(t *testing.T, f func(*testing.T, *Sessions)) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSessions()
		f(t, s)
		s.Close()
		synctest.Wait()
		assert.Empty(t, s.byHash)
	})
}

func TestSessions_EndWhenIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Sessions) {
		token := s.Begin(User{Name: "kim"})
		x, ok := s.Find(token)
		require.True(t, ok)
		assert.Equal(t, "kim", x.User)
		time.Sleep(maxIdle - 1)
		_, ok = s.Find(token)
		require.True(t, ok, "use prolongs it")
		time.Sleep(maxIdle - 1)
		require.NoError(t, x.Context.Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Error(t, x.Context.Err(), "its streams end with it")
		_, ok = s.Find(token)
		assert.False(t, ok)
		assert.Empty(t, s.byHash)
	})
}

func TestSessions_EndWhenOld(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Sessions) {
		token := s.Begin(User{Name: "kim"})
		begin := time.Now()
		for {
			if _, ok := s.Find(token); !ok {
				break
			}
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		assert.Equal(t, MaxAge, time.Since(begin))
		assert.Empty(t, s.byHash)
	})
}

func TestSessions_KeepNoToken(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Sessions) {
		token := s.Begin(User{Name: "kim"})
		raw, err := base64.RawURLEncoding.DecodeString(token)
		require.NoError(t, err)
		assert.Len(t, raw, 32)
		x := s.byHash[sha256.Sum256([]byte(token))]
		require.NotNil(t, x)
		assert.NotContains(t, fmt.Sprintf("%+v", *x), token)
		assert.NotEqual(t, token, s.Begin(User{Name: "kim"}))
		_, ok := s.Find("")
		assert.False(t, ok)
	})
}

func TestSessions_AreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Sessions) {
		first := s.Begin(User{Name: "kim"})
		time.Sleep(time.Second)
		other := s.Begin(User{Name: "lee"})
		for range maxSessionsOfAUser {
			time.Sleep(time.Second)
			s.Begin(User{Name: "kim"})
		}
		assert.Len(t, s.byHash, maxSessionsOfAUser+1)
		_, ok := s.Find(first)
		assert.False(t, ok, "the one that was used least recently ends")
		_, ok = s.Find(other)
		assert.True(t, ok, "not one of another user")
		for i := range maxSessions {
			s.Begin(User{Name: fmt.Sprint(i)})
		}
		assert.Len(t, s.byHash, maxSessions)
	})
}

func TestSessions_EndWithTheirUser(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Sessions) {
		before := usersOf(t, map[string]int{"kim": 10, "lee": 10, "may": 10})
		tokens := map[string]string{}
		for name, user := range before.byName {
			tokens[name] = s.Begin(user)
		}
		s.Check(before)
		require.Len(t, s.byHash, 3)
		s.Check(usersOf(t, map[string]int{"kim": 10, "lee": 11}))
		for name, want := range map[string]bool{"kim": true, "lee": false, "may": false} {
			_, ok := s.Find(tokens[name])
			assert.Equal(t, want, ok, name)
		}
		s.End(tokens["kim"])
		s.End(tokens["kim"])
		assert.Empty(t, s.byHash)
	})
}
