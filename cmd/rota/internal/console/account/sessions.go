package account

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

// The bounds of sessions.
const (
	MaxAge             = 12 * time.Hour
	maxIdle            = time.Hour
	maxSessions        = 1000
	maxSessionsOfAUser = 20
)

// Session is a login of a user.
type Session struct {
	User string
	// Context ends with the session.
	Context context.Context

	key     [sha256.Size]byte // the hash of the token
	made    [sha256.Size]byte // the fingerprint of the user at the login
	end     context.CancelFunc
	began   time.Time
	expires time.Time
	timer   *time.Timer
}

// Sessions are the logins in force, in memory. A session is known by its token, of which only the hash is kept.
type Sessions struct {
	mu     sync.Mutex
	byHash map[[sha256.Size]byte]*Session
}

// NewSessions returns Sessions without any.
func NewSessions() *Sessions { return &Sessions{byHash: map[[sha256.Size]byte]*Session{}} }

// Begin begins a session, and returns its token. If there are too many, the one that has not been used for the longest time ends.
func (s *Sessions) Begin(u User) (token string) {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	token = base64.RawURLEncoding.EncodeToString(random)
	x := &Session{User: u.Name, key: sha256.Sum256([]byte(token)), made: u.fingerprint(), began: time.Now(), expires: time.Now().Add(maxIdle)}
	x.Context, x.end = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom(maxSessionsOfAUser, func(other *Session) bool { return other.User == u.Name })
	s.makeRoom(maxSessions, func(*Session) bool { return true })
	s.byHash[x.key] = x
	x.timer = time.AfterFunc(maxIdle, func() { s.expire(x) })
	return token
}

// makeRoom ends the session that expires first among those that match, if there are as many as allowed.
func (s *Sessions) makeRoom(most int, match func(*Session) bool) {
	var first *Session
	n := 0
	for _, x := range s.byHash {
		if !match(x) {
			continue
		}
		n++
		if first == nil || x.expires.Before(first.expires) {
			first = x
		}
	}
	if n >= most {
		s.remove(first)
	}
}

// Find returns the session of a token, which is in use by that.
func (s *Sessions) Find(token string) (*Session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.byHash[sha256.Sum256([]byte(token))]
	now := time.Now()
	if !ok || !now.Before(x.expires) {
		return nil, false
	}
	x.expires = now.Add(maxIdle)
	if last := x.began.Add(MaxAge); last.Before(x.expires) {
		x.expires = last
	}
	x.timer.Reset(x.expires.Sub(now))
	return x, true
}

// End ends the session of a token.
func (s *Sessions) End(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.byHash[sha256.Sum256([]byte(token))]; ok {
		s.remove(x)
	}
}

// Check ends the sessions of users that are gone, or have another password.
func (s *Sessions) Check(users *Users) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.byHash {
		if u, ok := users.Find(x.User); !ok || u.fingerprint() != x.made {
			s.remove(x)
		}
	}
}

// Close ends all sessions.
func (s *Sessions) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.byHash {
		s.remove(x)
	}
}

// expire ends a session whose time is over. Its timer may have fired while Find moved the end.
func (s *Sessions) expire(x *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(x.expires) {
		s.remove(x)
	}
}

func (s *Sessions) remove(x *Session) {
	delete(s.byHash, x.key)
	x.timer.Stop()
	x.end()
}
