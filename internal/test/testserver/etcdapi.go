package testserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// rootUser is also the name of the role with all permissions.
const rootUser = "root"

// call calls etcd's JSON interface, which needs no client library.
func (e *etcd) call(ctx context.Context, m *Member, path string, in, out any) error {
	return e.callWith(ctx, m, "", path, in, out)
}

// callAsRoot is call with the credentials of root, if required.
func (e *etcd) callAsRoot(ctx context.Context, m *Member, path string, in, out any) error {
	if e.options.RootPassword == "" {
		return e.call(ctx, m, path, in, out)
	}
	var granted struct {
		Token string `json:"token"`
	}
	credentials := map[string]string{"name": rootUser, "password": e.options.RootPassword}
	if err := e.call(ctx, m, "auth/authenticate", credentials, &granted); err != nil {
		return err
	}
	return e.callWith(ctx, m, granted.Token, path, in, out)
}

func (e *etcd) callWith(ctx context.Context, m *Member, token, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.clientURL(m)+"/v3/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	answer, err := doRequest(req, m.cluster.TLS())
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

// counters returns metrics by name and labels.
func (e *etcd) counters(ctx context.Context, m *Member) (map[string]float64, error) {
	page, err := httpGet(ctx, e.adminURL(m)+"/metrics")
	if err != nil {
		return nil, err
	}
	counters := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(page))
	for lines.Scan() {
		// name{label="value",...} number
		i := strings.LastIndexByte(lines.Text(), ' ')
		if i < 0 || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		if v, err := strconv.ParseFloat(lines.Text()[i+1:], 64); err == nil {
			counters[lines.Text()[:i]] = v
		}
	}
	return counters, lines.Err()
}

func httpGet(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return doRequest(req, nil)
}

// doRequest keeps no connection open.
func doRequest(req *http.Request, config *tls.Config) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", req.Method, req.URL, resp.Status, bytes.TrimSpace(body))
	}
	return body, err
}
