package account

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/web"
)

// newToken returns a token, and a file that has it beside a user.
func newToken(t *testing.T, expires time.Time) (secret, file string) {
	t.Helper()
	secret, entry, err := NewToken("deploys: 1", Roles{AnyNamespace: web.Look, "billing": web.Operate}, expires)
	require.NoError(t, err)
	return secret, "users:\n- {name: kim, roles: {a: look}}\ntokens:\n" + entry
}

func TestToken_IsFoundByItsSecret(t *testing.T) {
	secret, file := newToken(t, time.Time{})
	users, err := ParseUsers([]byte(file))
	require.NoError(t, err)
	found, err := users.FindToken(secret, time.Now())
	require.NoError(t, err)
	assert.Equal(t, "deploys: 1", found.Name)
	assert.Equal(t, web.Operate, found.Roles.In("billing"))
	assert.Equal(t, web.Look, found.Roles.In("search"))
	for _, wrong := range []string{"", secret[:len(secret)-1], secret + "x", strings.ToUpper(secret), TokenPrefix, "deploys: 1"} {
		_, err := users.FindToken(wrong, time.Now())
		assert.ErrorIs(t, err, ErrUnknownToken, wrong)
	}
	_, ok := users.Find("deploys: 1")
	assert.False(t, ok, "a token is no user, who could log in")
}

func TestToken_HasManyRandomBits(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		secret, file := newToken(t, time.Time{})
		assert.Regexp(t, `^rota_[A-Za-z0-9_-]{43}$`, secret)
		assert.False(t, seen[secret])
		seen[secret] = true
		assert.NotContains(t, file, secret[len(TokenPrefix):], "the file has the hash only")
	}
}

func TestToken_Expires(t *testing.T) {
	end := time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)
	secret, file := newToken(t, end)
	users, err := ParseUsers([]byte(file))
	require.NoError(t, err)
	_, err = users.FindToken(secret, end.Add(-1))
	require.NoError(t, err)
	_, err = users.FindToken(secret, end)
	assert.ErrorIs(t, err, ErrExpired)
}

func TestToken_IsFoundAmongMany(t *testing.T) {
	file, secrets := "tokens:\n", map[string]string{}
	for _, name := range []string{"a", "b", "c", "d"} {
		secret, entry, err := NewToken(name, Roles{"n": web.Look}, time.Time{})
		require.NoError(t, err)
		file += entry
		secrets[name] = secret
	}
	users, err := ParseUsers([]byte(file))
	require.NoError(t, err, "a file may have tokens only")
	assert.True(t, users.HaveTokens())
	for name, secret := range secrets {
		found, err := users.FindToken(secret, time.Now())
		require.NoError(t, err)
		assert.Equal(t, name, found.Name)
	}
}

func TestParseUsers_RefusesTokens(t *testing.T) {
	_, file := newToken(t, time.Time{})
	hash := file[strings.Index(file, hashPrefix):][:len(hashPrefix)+64]
	for name, c := range map[string]struct{ text, want string }{
		"the secret as the hash": {"{name: x, hash: rota_0123456789, roles: {a: look}}", "hash is not one of a token"},
		"a hash of a password":   {"{name: x, hash: " + hashOf(12) + ", roles: {a: look}}", "hash is not one of a token"},
		"half a hash":            {"{name: x, hash: " + hash[:40] + ", roles: {a: look}}", "hash is not one of a token"},
		"a longer hash":          {"{name: x, hash: " + hash + "00, roles: {a: look}}", "hash is not one of a token"},
		"no hash":                {"{name: x, roles: {a: look}}", "hash is not one of a token"},
		"no roles":               {"{name: x, hash: " + hash + "}", "it has no roles"},
		"an unknown role":        {"{name: x, hash: " + hash + ", roles: {a: root}}", "root"},
		"no name":                {"{hash: " + hash + ", roles: {a: look}}", "the name is empty"},
		"the name of a user":     {"{name: kim, hash: " + hash + ", roles: {a: look}}", `token 1 ("kim"): an earlier entry has the name`},
		"a name twice":           {"{name: x, hash: " + hash + ", roles: {a: look}}\n- {name: x, hash: " + hash + ", roles: {a: look}}", `token 2 ("x"): an earlier entry has the name`},
		"no instant":             {"{name: x, hash: " + hash + ", roles: {a: look}, expires: soon}", "expires is \"soon\""},
		"an unknown key":         {"{name: x, hash: " + hash + ", roles: {a: look}, token: rota_1}", "field token not found"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseUsers([]byte("users:\n- {name: kim, roles: {a: look}}\ntokens:\n- " + c.text + "\n"))
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "rota_0")
			assert.NotContains(t, err.Error(), hash[10:30])
		})
	}
}
