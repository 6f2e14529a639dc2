package handler

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestURL_Renders(t *testing.T) {
	for _, c := range []struct{ template, want string }{
		{"https://a.example", "https://a.example"},
		{"HTTP://A.example:8080/", "HTTP://A.example:8080/"},
		{"https://user:pass@a.example/x", "https://user:pass@a.example/x"},
		{"https://[::1]:80/{{.Shard}}", "https://[::1]:80/2"},
		{"https://a.example/poll/{{.Shard}}", "https://a.example/poll/2"},
		{"https://a.example/{{.ShardParam}}-{{.Shard}}/x/", "https://a.example/Guangzhou-2/x/"},
		{"https://a.example/a//b/../{{.Shard}}", "https://a.example/a//b/../2"},
		{"https://a.example?shard={{.Shard}}&at={{.FireTime}}", "https://a.example?shard=2&at=2026-05-05T03%3A00%3A00Z"},
		{"https://a.example/x?shard={{.Shard}}/{{.Shards}}?&", "https://a.example/x?shard=2/3?&"},
		{"https://a.example/{{.Shard}}?{{.Param}}={{.Param}}", "https://a.example/2?full=full"},
		{`https://a.example/{{.FireTime.Format "2006"}}/{{printf "%03d" .Shard}}`, "https://a.example/2026/002"},
		{"https:{{/* a comment */}}//a.example{{- /* another */ -}} /x", "https://a.example/x"},
	} {
		u, err := parseURL(c.template)
		if !assert.NoError(t, err, c.template) {
			continue
		}
		got, err := u.render(viewOf(run()))
		assert.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
}

func TestURL_Refuses(t *testing.T) {
	for _, c := range []struct{ template, want string }{
		{"", "does not begin with http"},
		{"a.example/x", "does not begin with http"},
		{"/x", "does not begin with http"},
		{"ftp://a.example", "does not begin with http"},
		{"file:///etc/passwd", "does not begin with http"},
		{"https://", "has no host"},
		{"https:///x", "has no host"},
		{"https://:80/x", "has no host"},
		{"https://a b/", "invalid character"},
		{"https://a.example/#x", "fragment"},
		{"https://{{.ShardParam}}/", "{{.ShardParam}}: a value may not be part of scheme, host or port"},
		{"https://a.example{{.ShardParam}}/", "a value may not be part of scheme, host or port"},
		{"https://a.example:{{.Shard}}/", "a value may not be part of scheme, host or port"},
		{"https://{{.Job}}@a.example/", "a value may not be part of scheme, host or port"},
		{"{{.Param}}", "a value may not be part of scheme, host or port"},
		{"{{.Param}}://a.example/", "a value may not be part of scheme, host or port"},
		{"https:/{{.Param}}/x", "has no host"},
		{"https://a.example/{{if .Param}}x{{end}}", "only values"},
		{"https://a.example/{{with .Param}}{{.}}{{end}}", "only values"},
		{"https://a.example/{{$x := .Param}}{{$x}}", "only values"},
		{"https://a.example/{{template \"x\"}}", "only values"},
		{"https://a.example/{{.Shrad}}", "a run has no .Shrad"},
		{"https://a.example/{{", "unclosed action"},
		{`https://a.example/{{.FireTime.Format "2006/01"}}`, "has a slash or backslash"},
	} {
		_, err := parseURL(c.template)
		assert.ErrorContains(t, err, c.want, c.template)
	}
}

// Whatever a parameter is, the URL has the template's host, number of segments and parameters,
// and the parameter arrives as it is; or the run fails.
func TestURL_AValueStaysInItsPlace(t *testing.T) {
	u, err := parseURL("https://a.example:8443/tenants/{{.ShardParam}}/poll?from={{.Param}}&x=1")
	require.NoError(t, err)
	params := append([]string{"\x00", "\u2215", "\uFF0F", "a%2fb", "a+b", "{{.Fence}}"}, hostile...)
	for _, param := range params {
		r := run()
		r.Param, r.ShardParam = param, param
		text, err := u.render(viewOf(r))
		if param == "" || param == "." || param == ".." || strings.ContainsAny(param, `/\`) {
			var broken *segmentError
			assert.True(t, errors.As(err, &broken), "%q: %v, %v", param, text, err)
			continue
		}
		require.NoError(t, err, "%q", param)
		got, err := url.Parse(text)
		require.NoError(t, err, "%q: %s", param, text)
		assert.Equal(t, "https", got.Scheme)
		assert.Equal(t, "a.example:8443", got.Host)
		assert.Nil(t, got.User)
		assert.Empty(t, got.Fragment)
		assert.Equal(t, "/tenants/"+param+"/poll", got.Path)
		assert.Len(t, strings.Split(got.EscapedPath(), "/"), 4)
		query, err := url.ParseQuery(got.RawQuery)
		require.NoError(t, err)
		assert.Equal(t, url.Values{"from": {param}, "x": {"1"}}, query)
		assert.NotContains(t, text, " ")
	}
}

func TestURL_ValuesMakeNoDotSegmentTogether(t *testing.T) {
	for _, c := range []struct{ template, param string }{
		{"https://a.example/{{.Param}}{{.Param}}", "."},
		{"https://a.example/.{{.Param}}/x", "."},
		{"https://a.example/{{.Param}}./x", "."},
		{"https://a.example/{{.Param}}./x", ""},
		{"https://a.example/{{.Param}}", ""},
		{"https://a.example/{{.Param}}{{.Param}}/x", ""},
		{"https://a.example/{{.Param}}?x", ""},
	} {
		u, err := parseURL(c.template)
		require.NoError(t, err)
		r := run()
		r.Param = c.param
		_, err = u.render(viewOf(r))
		assert.ErrorContains(t, err, "would remove a segment", c.template)
	}
}
