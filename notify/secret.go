package notify

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/contain"
)

// maxSecretBytes bounds the file of a secret.
const maxSecretBytes = 64 << 10

// secrets reads the files of secrets.
type secrets struct {
	read func(path string) ([]byte, error) // nil: os.ReadFile
}

// readFile returns the content of a file without line breaks at its end. An empty one is an error.
func (s secrets) readFile(path string) (text string, err error) {
	read := s.read
	if read == nil {
		read = os.ReadFile
	}
	err = contain.Call("ReadFile", func() error {
		content, err := read(path)
		text = strings.TrimRight(string(content), "\r\n")
		return err
	})
	switch {
	case err != nil:
		return "", err
	case text == "":
		return "", fmt.Errorf("%s is empty", path)
	case len(text) > maxSecretBytes:
		return "", fmt.Errorf("%s has more than %d bytes", path, maxSecretBytes)
	}
	return text, nil
}

// masker replaces secrets in texts.
type masker struct{ values []string }

// add adds a secret. One of less than four bytes would replace parts of words.
func (m *masker) add(value string) {
	if len(value) >= 4 {
		m.values = append(m.values, value)
	}
}

// addURL adds the parts of a URL that may be a secret: all but scheme, host and port.
func (m *masker) addURL(text string, u *url.URL) {
	if len(u.Path) > 1 || u.RawQuery != "" {
		m.add(text)
	}
	for _, path := range []string{u.EscapedPath(), u.Path} {
		if len(path) > 8 { // else it is a word
			m.add(strings.TrimPrefix(path, "/"))
		}
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if len(part) >= 16 { // a token, and not a word
			m.add(part)
		}
	}
	m.add(u.RawQuery)
	for _, values := range u.Query() {
		for _, value := range values {
			m.add(value)
		}
	}
	if password, ok := u.User.Password(); ok {
		m.add(password)
	}
}

// text returns a text with the secrets replaced.
func (m *masker) text(text string) string {
	slices.SortFunc(m.values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, value := range m.values {
		text = strings.ReplaceAll(text, value, "***")
	}
	return text
}

// error returns an error whose text has the secrets replaced.
func (m *masker) error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if masked := m.text(text); masked != text {
		return &maskedError{masked, err}
	}
	return err
}

// maskedError is an error with another text. Callers use Unwrap only to find types of errors.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }

func (e *maskedError) Unwrap() error { return e.err }
