package account

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/web"
)

// hashOf returns a well-formed hash of a cost, of no known password.
func hashOf(cost int) string { return string(dummyHash(cost)) }

func TestParseUsers(t *testing.T) {
	users, err := ParseUsers([]byte("users:\n- {name: kim, hash: " + hashOf(12) + ", roles: {\"*\": look, billing: admin}}\n- {name: lee, roles: {billing: operate}}\n"))
	require.NoError(t, err)
	kim, ok := users.Find("kim")
	require.True(t, ok)
	assert.Equal(t, web.Admin, kim.Roles.In("billing"))
	assert.Equal(t, web.Look, kim.Roles.In("search"))
	lee, ok := users.Find("lee")
	require.True(t, ok)
	assert.Equal(t, web.Operate, lee.Roles.In("billing"))
	assert.Zero(t, lee.Roles.In("search"))
	assert.True(t, users.HavePassword())
	_, ok = users.Find("Kim")
	assert.False(t, ok, "names are compared byte by byte")
}

func TestParseUsers_Refuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no users":                {"", "it has no users"},
		"not YAML":                {"users: [", "yaml"},
		"an unknown key":          {"users:\n- {name: kim, password: x, roles: {a: look}}", "field password not found"},
		"no name":                 {"users:\n- {roles: {a: look}}", "the name is empty"},
		"a long name":             {"users:\n- {name: " + strings.Repeat("x", 65) + ", roles: {a: look}}", "65 bytes, above 64"},
		"a line in a name":        {"users:\n- {name: \"a\\nb\", roles: {a: look}}", "not printed"},
		"a blank around a name":   {"users:\n- {name: \" kim\", roles: {a: look}}", "spaces around it"},
		"a name twice":            {"users:\n- {name: kim, roles: {a: look}}\n- {name: kim, roles: {a: admin}}", `user 2 ("kim"): an earlier entry has the name`},
		"no roles":                {"users:\n- {name: kim}", "it has no roles"},
		"an unknown role":         {"users:\n- {name: kim, roles: {a: root}}", "root"},
		"a password as the hash":  {"users:\n- {name: kim, hash: hunter2hunter2, roles: {a: look}}", "hash is not one of bcrypt"},
		"a hash that is soon had": {"users:\n- {name: kim, hash: " + hashOf(9) + ", roles: {a: look}}", "cost of the hash is 9"},
		"a hash that takes long":  {"users:\n- {name: kim, hash: " + hashOf(15) + ", roles: {a: look}}", "cost of the hash is 15"},
		"a hash and more":         {"users:\n- {name: kim, hash: " + hashOf(12) + "x, roles: {a: look}}", "hash is not one of bcrypt"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseUsers([]byte(c.text))
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestParseRoles(t *testing.T) {
	roles, err := ParseRoles("look, billing=admin,billing=operate")
	require.NoError(t, err)
	assert.Equal(t, Roles{AnyNamespace: web.Look, "billing": web.Admin}, roles)
	for _, text := range []string{"", "root", "look,", "billing=", "=x", "look;admin"} {
		_, err := ParseRoles(text)
		assert.Error(t, err, text)
	}
}
