package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/web/internal/role"
)

// levels are the least levels of all routes. A route without a row fails the test, so that nobody adds one without thinking of it.
var levels = map[string]role.Role{
	"GET /jobs":               role.Look,
	"GET /jobs/{job}":         role.Look,
	"GET /jobs/{job}/shards":  role.Look,
	"GET /jobs/{job}/fires":   role.Look,
	"GET /jobs/{job}/runs":    role.Look,
	"GET /jobs/{job}/logs":    role.Reveal,
	"GET /jobs/{job}/explain": role.Look,
	"GET /jobs/{job}/next":    role.Look,
	"GET /definitions":        role.Look,
	"GET /definitions/{job}":  role.Look,
	"GET /kinds":              role.Look,
	"GET /instances":          role.Look,
	"GET /pools":              role.Look,
	"GET /decisions":          role.Look,
	"GET /acts":               role.Look,
	"GET /check":              role.Look,
	"GET /diagnosis":          role.Look,
	"GET /moves":              role.Look,
	"GET /watch":              role.Look,
	"GET /openapi.json":       role.Look,

	"POST /jobs/{job}/trigger":        role.Operate,
	"POST /jobs/{job}/retry":          role.Operate,
	"POST /jobs/{job}/backfill":       role.Operate,
	"POST /jobs/{job}/stop-backfills": role.Operate,
	"POST /jobs/{job}/cancel":         role.Operate,
	"POST /jobs/{job}/pause":          role.Operate,
	"POST /jobs/{job}/resume":         role.Operate,
	"POST /jobs/{job}/disable":        role.Operate,
	"POST /jobs/{job}/enable":         role.Operate,
	"POST /jobs/{job}/override":       role.Admin,
	"POST /jobs/{job}/reset":          role.Admin,
	"POST /jobs/{job}/define":         role.Admin,
	"POST /jobs/{job}/delete":         role.Admin,
	"POST /jobs/{job}/retire":         role.Admin,
	"POST /jobs/{job}/unretire":       role.Admin,
	"POST /jobs/{job}/forget":         role.Admin,
	"POST /pause":                     role.Operate,
	"POST /resume":                    role.Operate,
	"POST /disable":                   role.Operate,
	"POST /enable":                    role.Operate,
	"POST /acknowledge":               role.Admin,
	"POST /set-pool":                  role.Admin,
	"POST /delete-pool":               role.Admin,
	"POST /instances/{name}/drain":    role.Operate,
	"POST /instances/{name}/undrain":  role.Operate,
}

func TestRoutes_EachWithEachRole(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.define("settle-acme")
		routes := routesOf(verbs)
		assert.Len(t, routes, len(levels))
		for i := range routes {
			rt := &routes[i]
			name := rt.method + " " + rt.path
			least, listed := levels[name]
			if !assert.True(t, listed, "%s has no row", name) {
				continue
			}
			path := strings.NewReplacer("/definitions/{job}", "/definitions/settle-acme", "{job}", "settle", "{name}", "web-1").Replace(rt.path)
			for level := role.Role(0); level <= role.Admin; level++ {
				ctx, cancel := context.WithCancel(t.Context())
				cancel() // which ends a stream at once
				r := request(rt.method, path, `{"nonsense":true}`)
				if rt.media == "text/event-stream" {
					r = r.WithContext(ctx)
				}
				if r.Header.Set(levelHeader, strconv.Itoa(int(level))); level == 0 {
					r.Header.Del(levelHeader)
				}
				answer := serve(f.api, r)
				switch {
				case level == 0:
					assert.Equal(t, "unauthorized", problem(t, answer).Type, name)
				case level < least:
					assert.Equal(t, "forbidden", problem(t, answer).Type, "%s, level %d", name, level)
				case rt.verb != nil:
					assert.Equal(t, "unknown-field", problem(t, answer).Type, "%s, level %d", name, level)
				default:
					assert.Equal(t, http.StatusOK, answer.StatusCode, "%s, level %d", name, level)
				}
				assert.Equal(t, "no-store", answer.Header.Get("Cache-Control"))
			}
		}
	})
}

func TestRoutes_ReadOnlyRefusesActsOfAll(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.config.ReadOnly = true
		h := New(f.config)
		routes := routesOf(verbs)
		for i := range routes {
			if routes[i].verb != nil {
				path := strings.NewReplacer("{job}", "settle", "{name}", "web-1").Replace(routes[i].path)
				assert.Equal(t, "read-only", problem(t, serve(h, request(http.MethodPost, path, "{}"))).Type, path)
			}
		}
		assert.Equal(t, http.StatusOK, serve(h, request(http.MethodGet, "/jobs", "")).StatusCode)
	})
}

// A page of another site has the cookies of the browser, but can send neither the type nor, past the console's protection, anything.
func TestRoutes_RefuseActsOfOtherSites(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/jsonx"} {
			r := f.post("/jobs/settle/trigger", "{}", "Content-Type", media)
			assert.Equal(t, "unsupported-media-type", problem(t, r).Type, media)
		}
		h := http.NewCrossOriginProtection().Handler(f.api)
		assert.Equal(t, http.StatusForbidden, serve(h, request(http.MethodPost, "/jobs/settle/trigger", "{}", "Sec-Fetch-Site", "cross-site")).StatusCode)
		assert.Equal(t, http.StatusForbidden, serve(h, request(http.MethodPost, "/jobs/settle/trigger", "{}", "Origin", "https://evil.example")).StatusCode)
		acts, err := f.op.Acts(t.Context(), "settle")
		assert.NoError(t, err)
		assert.Empty(t, acts)
		assert.Equal(t, http.StatusOK, f.post("/jobs/settle/trigger", "{}", "Content-Type", "application/json; charset=utf-8").StatusCode)
	})
}
