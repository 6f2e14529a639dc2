package notify

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/secret"
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

// maskURL adds the parts of a URL that may be a secret: all but scheme, host and port.
func maskURL(mask *secret.Masker, text string, u *url.URL) {
	if len(u.Path) > 1 || u.RawQuery != "" {
		mask.Add(text)
	}
	for _, path := range []string{u.EscapedPath(), u.Path} {
		mask.Add(strings.TrimPrefix(path, "/"))
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if len(part) >= 16 { // a token, and not a word
			mask.Add(part)
		}
	}
	mask.Add(u.RawQuery)
	for _, values := range u.Query() {
		for _, value := range values {
			mask.Add(value)
		}
	}
	if password, ok := u.User.Password(); ok {
		mask.Add(password)
	}
}
