package account

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// The bounds of passwords in bytes. Bcrypt ignores what follows the highest.
const (
	minPasswordBytes = 12
	maxPasswordBytes = 72
)

// newCost is the cost of new hashes: a quarter of a second of a CPU in 2026.
const newCost = 12

// The bounds of logins. A name or an address has a number of attempts in reserve, which grows back by one in each interval.
const (
	maxWaiting      = 8 // logins that wait for their turn
	attemptsOfName  = 10
	nameInterval    = 30 * time.Second
	attemptsOfPlace = 20
	placeInterval   = 10 * time.Second
)

var (
	// ErrWrong is the error for a wrong password, and for an unknown name.
	ErrWrong = errors.New("name or password is wrong")
	// ErrBusy is the error of a login while others wait for their turn.
	ErrBusy = errors.New("too many logins at a time")
)

// LimitedError is the error for more attempts than a name or an address has.
type LimitedError struct{ Wait time.Duration }

func (e *LimitedError) Error() string {
	return fmt.Sprintf("too many attempts; the next is possible in %v", e.Wait.Round(time.Second))
}

// Hash returns the hash of a new password for the file of users.
func Hash(password string) (string, error) {
	switch n := len(password); {
	case n < minPasswordBytes:
		return "", fmt.Errorf("the password has %d bytes, below %d", n, minPasswordBytes)
	case n > maxPasswordBytes:
		return "", fmt.Errorf("the password has %d bytes, above %d", n, maxPasswordBytes)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), newCost)
	return string(hash), err
}

// Checker checks passwords, one at a time, so that logins never use more than one CPU.
type Checker struct {
	// Compare compares a password with a hash. Tests replace it.
	Compare func(hash, password []byte) error

	waiting chan struct{} // full if no further login may wait
	turn    chan struct{} // full while a password is checked

	names, places *limits
}

// NewChecker returns a Checker.
func NewChecker() *Checker {
	return &Checker{
		Compare: bcrypt.CompareHashAndPassword,
		waiting: make(chan struct{}, maxWaiting+1), turn: make(chan struct{}, 1),
		names:  newLimits(attemptsOfName, nameInterval),
		places: newLimits(attemptsOfPlace, placeInterval),
	}
}

// Check returns the user of a name and a password, or ErrWrong, ErrBusy or a LimitedError. Place is where the attempt comes from.
func (c *Checker) Check(ctx context.Context, users *Users, name, password, place string) (User, error) {
	if len(name) > maxNameBytes {
		name = "" // unknown
	}
	// The place comes first: one that has no attempts left cannot use up those of a name.
	if wait := c.places.take(place); wait > 0 {
		return User{}, &LimitedError{wait}
	}
	if wait := c.names.take(name); wait > 0 {
		return User{}, &LimitedError{wait}
	}
	select {
	case c.waiting <- struct{}{}:
		defer func() { <-c.waiting }()
	default:
		return User{}, ErrBusy
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return User{}, ctx.Err()
	}
	user, err := c.compareAll(users, name, password)
	if err == nil {
		c.names.giveBack(name)
		c.places.giveBack(place)
	}
	return user, err
}

// compareAll checks a password. The check takes the time of the highest cost in the file for all names, also unknown ones. Each cost
// takes twice the time of the one below.
func (c *Checker) compareAll(users *Users, name, password string) (User, error) {
	user, ok := users.Find(name)
	ok = ok && len(user.hash) > 0 && len(password) <= maxPasswordBytes
	from := users.cost
	if ok {
		ok = c.Compare(user.hash, []byte(password)) == nil
		from, _ = bcrypt.Cost(user.hash)
	} else {
		_ = c.Compare(dummyHash(from), []byte(password))
	}
	for cost := from; cost < users.cost; cost++ {
		_ = c.Compare(dummyHash(cost), []byte(password))
	}
	if !ok {
		return User{}, ErrWrong
	}
	return user, nil
}

// dummyHash returns a hash of no known password.
func dummyHash(cost int) []byte {
	return fmt.Appendf(nil, "$2a$%02d$%s", cost, strings.Repeat("./", 26)+".")
}
