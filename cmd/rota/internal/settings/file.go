package settings

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/internal/registryurl"
)

// File is the configuration file.
type File struct {
	// Current is the context that is used unless another is named.
	Current  string                  `yaml:"current,omitempty"`
	Contexts map[string]ContextEntry `yaml:"contexts,omitempty"`
}

// ContextEntry is a context: a fleet, and how to reach its store. It holds no secrets but the names
// of files and environment variables that do.
type ContextEntry struct {
	Registry     string `yaml:"registry,omitempty"`
	Namespace    string `yaml:"namespace,omitempty"`
	Group        string `yaml:"group,omitempty"`
	TLS          TLS    `yaml:"tls,omitempty"`
	User         string `yaml:"user,omitempty"`
	PasswordFile string `yaml:"password_file,omitempty"`
	PasswordEnv  string `yaml:"password_env,omitempty"`
	History      string `yaml:"history,omitempty"`
	HistoryEnv   string `yaml:"history_env,omitempty"`
	Protected    bool   `yaml:"protected,omitempty"` // verbs demand --yes
	Output       string `yaml:"output,omitempty"`
	Time         string `yaml:"time,omitempty"`
	Timeout      string `yaml:"timeout,omitempty"`
}

// TLS names the files of a TLS configuration. If any is set, connections use TLS.
type TLS struct {
	Enabled    bool   `yaml:"enabled,omitempty"` // needed only without the others
	CAFile     string `yaml:"ca_file,omitempty"`
	CertFile   string `yaml:"cert_file,omitempty"`
	KeyFile    string `yaml:"key_file,omitempty"`
	ServerName string `yaml:"server_name,omitempty"`
}

// ConfigPath returns the path of the configuration file: ROTA_CONFIG, or rota/config.yaml in
// XDG_CONFIG_HOME or ~/.config.
func (s *Settings) ConfigPath() string {
	if path := s.Getenv("ROTA_CONFIG"); path != "" {
		return path
	}
	dir := s.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		dir = filepath.Join(s.Getenv("HOME"), ".config")
	}
	return filepath.Join(dir, "rota", "config.yaml")
}

// ReadFile reads a configuration file. One that does not exist is empty.
func ReadFile(path string) (File, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return File{}, nil
	}
	if err != nil {
		return File{}, err
	}
	var f File
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// WriteFile replaces a configuration file. Only the user may read it.
func WriteFile(path string, f File) error {
	text, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// A rename, so that a crash leaves the old file or the new one.
	next, err := os.CreateTemp(filepath.Dir(path), ".config-*")
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}

// addCredentials adds TLS, user and password: from the environment, or else from the context if
// the registry is the context's.
func (s *Settings) addCredentials(o *registryurl.Options) error {
	c := ContextEntry{
		User: s.Getenv("ROTA_USER"), PasswordFile: s.Getenv("ROTA_PASSWORD_FILE"),
		TLS: TLS{
			Enabled: s.Getenv("ROTA_TLS") != "", CAFile: s.Getenv("ROTA_TLS_CA_FILE"), CertFile: s.Getenv("ROTA_TLS_CERT_FILE"),
			KeyFile: s.Getenv("ROTA_TLS_KEY_FILE"), ServerName: s.Getenv("ROTA_TLS_SERVER_NAME"),
		},
	}
	if s.Getenv("ROTA_PASSWORD") != "" {
		c.PasswordEnv = "ROTA_PASSWORD"
	}
	if s.usesContextRegistry() {
		c.User = cmp.Or(c.User, s.inUse.User)
		if c.PasswordEnv == "" && c.PasswordFile == "" {
			c.PasswordEnv, c.PasswordFile = s.inUse.PasswordEnv, s.inUse.PasswordFile
		}
		if c.TLS == (TLS{}) {
			c.TLS = s.inUse.TLS
		}
	}
	o.Username = c.User
	var err error
	if o.Password, err = s.readPassword(c); err != nil {
		return err
	}
	o.TLS, err = c.TLS.load()
	return err
}

// readPassword returns the password that c names, "" if it names none.
func (s *Settings) readPassword(c ContextEntry) (string, error) {
	switch {
	case c.PasswordEnv != "":
		password := s.Getenv(c.PasswordEnv)
		if password == "" {
			return "", fmt.Errorf("the password of %q is to be in %s, which is empty", c.User, c.PasswordEnv)
		}
		return password, nil
	case c.PasswordFile != "":
		text, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return "", fmt.Errorf("password of %q: %w", c.User, err)
		}
		return strings.TrimRight(string(text), "\r\n"), nil
	}
	return "", nil
}

// load returns the configuration that t describes, nil for the zero value.
func (t TLS) load() (*tls.Config, error) {
	c, err := jobsfile.TLSFiles(t).Config(os.ReadFile)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return c, nil
}
