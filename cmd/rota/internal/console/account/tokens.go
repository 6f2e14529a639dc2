package account

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rota-dev/rota/web"
)

// TokenPrefix begins each token, so that it is known as one where it should not be.
const TokenPrefix = "rota_"

// hashPrefix begins the hash of a token in the file. A token has 256 random bits, so that a fast hash is enough.
const hashPrefix = "sha256:"

var (
	// ErrUnknownToken is the error for a token that the file does not have.
	ErrUnknownToken = errors.New("the token is not known")
	// ErrExpired is the error for a token whose time is over.
	ErrExpired = errors.New("the token has expired")
)

// Token lets a program in that has its secret.
type Token struct {
	Name    string
	Roles   Roles
	Expires time.Time // zero for never
	hash    [sha256.Size]byte
}

// tokenEntry is a token in the file.
type tokenEntry struct {
	Name    string            `yaml:"name"`
	Hash    string            `yaml:"hash"`
	Roles   map[string]string `yaml:"roles"`
	Expires string            `yaml:"expires,omitempty"`
}

// NewToken returns the secret of a new token, and its entry for the file of users. Expires may be zero.
func NewToken(name string, roles Roles, expires time.Time) (secret, entry string, err error) {
	if err := CheckName(name); err != nil {
		return "", "", err
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	secret = TokenPrefix + base64.RawURLEncoding.EncodeToString(random)
	sum := sha256.Sum256([]byte(secret))
	e := tokenEntry{Name: name, Hash: hashPrefix + hex.EncodeToString(sum[:]), Roles: map[string]string{}}
	for namespace, role := range roles {
		e.Roles[namespace] = role.String()
	}
	if !expires.IsZero() {
		e.Expires = expires.UTC().Format(time.RFC3339)
	}
	text, err := yaml.Marshal([]tokenEntry{e})
	return secret, string(text), err
}

// parse returns the token of an entry. Its errors do not have the hash.
func (e *tokenEntry) parse() (t Token, err error) {
	t.Name = e.Name
	text, found := strings.CutPrefix(e.Hash, hashPrefix)
	sum, decodeErr := hex.DecodeString(text)
	if !found || decodeErr != nil || copy(t.hash[:], sum) != sha256.Size || len(sum) != sha256.Size {
		err = errors.Join(err, errors.New("hash is not one of a token: rota web token makes one"))
	}
	if e.Expires != "" {
		var timeErr error
		if t.Expires, timeErr = time.Parse(time.RFC3339, e.Expires); timeErr != nil {
			err = errors.Join(err, fmt.Errorf("expires is %.40q, not an instant such as 2027-01-31T00:00:00Z", e.Expires))
		}
	}
	roles, rolesErr := parseRoles(e.Roles)
	t.Roles = roles
	return t, errors.Join(err, rolesErr)
}

// FindToken returns the token of a secret, or ErrUnknownToken or ErrExpired. Its time does not depend on how much of a hash matches.
func (u *Users) FindToken(secret string, now time.Time) (Token, error) {
	sum, found := sha256.Sum256([]byte(secret)), -1
	for i := range u.tokens {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(u.tokens[i].hash[:], sum[:]), i, found)
	}
	if found < 0 {
		return Token{}, ErrUnknownToken
	}
	t := u.tokens[found]
	if !t.Expires.IsZero() && !now.Before(t.Expires) {
		return t, fmt.Errorf("%w, on %s", ErrExpired, t.Expires.UTC().Format(time.RFC3339))
	}
	return t, nil
}

// HaveTokens reports whether any program can come in.
func (u *Users) HaveTokens() bool { return len(u.tokens) > 0 }

// parseRoles returns the roles of an entry by namespace.
func parseRoles(texts map[string]string) (roles Roles, err error) {
	if len(texts) == 0 {
		return nil, errors.New("it has no roles")
	}
	roles = Roles{}
	for namespace, text := range texts {
		role, roleErr := web.ParseRole(text)
		err = errors.Join(err, roleErr)
		roles[namespace] = role
	}
	return roles, err
}
