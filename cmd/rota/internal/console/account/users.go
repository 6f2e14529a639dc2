// Package account knows the users of rota web: their file, their passwords and their sessions.
package account

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/bcrypt"

	"github.com/rota-dev/rota/web"
)

// AnyNamespace is the key of a role for the namespaces that have none of their own.
const AnyNamespace = "*"

// maxNameBytes bounds names, as the record of an act does.
const maxNameBytes = 64

// The costs of hashes that the file may have. A lower one is soon guessed; a check of a higher one takes many seconds.
const (
	minCost = 10
	maxCost = 14
)

// Roles are the roles of a user by namespace.
type Roles map[string]web.Role

// In returns the role in a namespace, 0 if there is none.
func (r Roles) In(namespace string) web.Role {
	if role, ok := r[namespace]; ok {
		return role
	}
	return r[AnyNamespace]
}

// User is an entry of the file.
type User struct {
	Name  string
	Roles Roles
	hash  []byte // empty if the user cannot log in with a password
}

// fingerprint identifies the password of a user. It changes with the password, which ends the sessions.
func (u User) fingerprint() [sha256.Size]byte { return sha256.Sum256(u.hash) }

// Users are the entries of a file.
type Users struct {
	byName map[string]User
	cost   int // the highest cost of a hash
	tokens []Token

	// Replaced ends when another file is in force.
	Replaced context.Context
	replace  context.CancelFunc
}

// Replace ends Replaced.
func (u *Users) Replace() { u.replace() }

// Find returns the user of a name.
func (u *Users) Find(name string) (User, bool) {
	user, ok := u.byName[name]
	return user, ok
}

// HavePassword reports whether any user can log in.
func (u *Users) HavePassword() bool { return u.cost > 0 }

// ParseUsers reads the text of a file of users.
func ParseUsers(text []byte) (*Users, error) {
	var file struct {
		Users []struct {
			Name  string            `yaml:"name"`
			Hash  string            `yaml:"hash"`
			Roles map[string]string `yaml:"roles"`
		} `yaml:"users"`
		Tokens []tokenEntry `yaml:"tokens"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(file.Users)+len(file.Tokens) == 0 {
		return nil, errors.New("it has no users")
	}
	all := &Users{byName: map[string]User{}}
	all.Replaced, all.replace = context.WithCancel(context.Background())
	var errs []error
	for i, entry := range file.Users {
		user := User{Name: entry.Name, hash: []byte(entry.Hash)}
		problem := CheckName(entry.Name)
		if _, found := all.byName[entry.Name]; found {
			problem = errors.Join(problem, errors.New("an earlier entry has the name"))
		}
		if entry.Hash != "" {
			cost, err := checkHash(user.hash)
			problem = errors.Join(problem, err)
			all.cost = max(all.cost, cost)
		}
		var err error
		user.Roles, err = parseRoles(entry.Roles)
		problem = errors.Join(problem, err)
		if problem != nil {
			errs = append(errs, fmt.Errorf("user %d (%q): %w", i+1, entry.Name, problem))
		}
		all.byName[entry.Name] = user
	}
	return all, errors.Join(append(errs, all.addTokens(file.Tokens)...)...)
}

// addTokens adds tokens. A user and a token of one name could not be told apart in the record of acts.
func (u *Users) addTokens(entries []tokenEntry) (errs []error) {
	names := map[string]bool{}
	for i := range entries {
		t, problem := entries[i].parse()
		problem = errors.Join(CheckName(t.Name), problem)
		if _, found := u.byName[t.Name]; found || names[t.Name] {
			problem = errors.Join(problem, errors.New("an earlier entry has the name"))
		}
		if problem != nil {
			errs = append(errs, fmt.Errorf("token %d (%q): %w", i+1, t.Name, problem))
		}
		names[t.Name] = true
		u.tokens = append(u.tokens, t)
	}
	return errs
}

// CheckName returns an error for a text that cannot be the name of a user.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > maxNameBytes:
		return fmt.Errorf("the name has %d bytes, above %d", len(name), maxNameBytes)
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }), name != strings.TrimSpace(name):
		return errors.New("the name has characters that are not printed, or spaces around it")
	}
	return nil
}

// checkHash returns the cost of a hash of bcrypt. Its errors do not have the hash.
func checkHash(hash []byte) (int, error) {
	cost, err := bcrypt.Cost(hash)
	switch {
	case err != nil || len(hash) != 60:
		return 0, errors.New("hash is not one of bcrypt: rota web hash makes one")
	case cost < minCost || cost > maxCost:
		return 0, fmt.Errorf("the cost of the hash is %d, not from %d to %d: rota web hash makes another", cost, minCost, maxCost)
	}
	return cost, nil
}

// ParseRoles returns the roles of a list such as "look, billing=admin". One without a namespace applies to those that have none of their own.
func ParseRoles(text string) (Roles, error) {
	roles := Roles{}
	for item := range strings.SplitSeq(text, ",") {
		namespace, name, found := strings.Cut(strings.TrimSpace(item), "=")
		if !found {
			namespace, name = AnyNamespace, namespace
		}
		role, err := web.ParseRole(name)
		if err != nil {
			return nil, err
		}
		roles[namespace] = max(roles[namespace], role)
	}
	return roles, nil
}
