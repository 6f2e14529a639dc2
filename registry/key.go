package registry

import (
	"fmt"
	"strings"
)

// Key is a path of segments joined by slashes, without one at either end. Segments
// consist of A-Z a-z 0-9 . _ ~ - and are not "." or "..". The empty Key is the root: a
// directory, not a key.
//
// A key whose last segment begins with a tilde is an owned key: it is made by
// CreateOwned, lives as long as a session, and is a leaf. All others are made by Create.
// Since a key's name shows whether it is owned, every backend can refuse a child of an
// owned key, or an owned key above others, without asking the server.
type Key string

const (
	maxKeyBytes     = 512
	maxKeySegments  = 16
	maxSegmentBytes = 128
)

// Join makes a key of a directory and names. Empty parts are left out.
func Join(parts ...string) Key {
	n := 0
	for _, p := range parts {
		n += len(p) + 1
	}
	var b strings.Builder
	b.Grow(n)
	for _, p := range parts {
		if p == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('/')
		}
		b.WriteString(p)
	}
	return Key(b.String())
}

// Join returns the key of names below k.
func (k Key) Join(names ...string) Key {
	return Join(append([]string{string(k)}, names...)...)
}

// Dir returns the directory that k is in: the root for a key of one segment.
func (k Key) Dir() Key {
	if i := strings.LastIndexByte(string(k), '/'); i >= 0 {
		return k[:i]
	}
	return ""
}

// Name returns the last segment of k.
func (k Key) Name() string {
	return string(k[strings.LastIndexByte(string(k), '/')+1:])
}

// Owned reports whether k is the name of an owned key.
func (k Key) Owned() bool {
	i := strings.LastIndexByte(string(k), '/') + 1
	return i < len(k) && k[i] == '~'
}

// CheckKey returns an error wrapping ErrInvalidKey that names the key and the rule it
// breaks, or nil.
func CheckKey(k Key) error {
	if k == "" {
		return fmt.Errorf("%w: the root is a directory, not a key", ErrInvalidKey)
	}
	return checkPath(k, false)
}

// CheckDir is CheckKey for a directory: the root is one, an owned key is not.
func CheckDir(dir Key) error {
	if dir == "" {
		return nil
	}
	return checkPath(dir, true)
}

func checkPath(k Key, dir bool) error {
	if len(k) > maxKeyBytes {
		return fmt.Errorf("%w: %.40q...: longer than %d bytes", ErrInvalidKey, string(k), maxKeyBytes)
	}
	start, segments := 0, 0
	for i := 0; i <= len(k); i++ {
		if i < len(k) && k[i] != '/' {
			if !segmentByte[k[i]] {
				return fmt.Errorf("%w: %q: byte %d is not one of A-Z a-z 0-9 . _ ~ -", ErrInvalidKey, string(k), i)
			}
			continue
		}
		seg := k[start:i]
		segments++
		switch {
		case seg == "":
			return fmt.Errorf("%w: %q: empty segment", ErrInvalidKey, string(k))
		case seg == "." || seg == "..":
			return fmt.Errorf("%w: %q: segment %q", ErrInvalidKey, string(k), string(seg))
		case len(seg) > maxSegmentBytes:
			return fmt.Errorf("%w: %q: segment longer than %d bytes", ErrInvalidKey, string(k), maxSegmentBytes)
		case seg[0] == '~' && (dir || i < len(k)):
			return fmt.Errorf("%w: %q: nothing can be below the owned key %q", ErrInvalidKey, string(k), string(k[:i]))
		case segments > maxKeySegments:
			return fmt.Errorf("%w: %q: more than %d segments", ErrInvalidKey, string(k), maxKeySegments)
		}
		start = i + 1
	}
	return nil
}

var segmentByte = func() (t [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-" {
		t[c] = true
	}
	return t
}()
