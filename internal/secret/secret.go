// Package secret replaces the values that rota has read from files and variables in all texts that leave the process: log
// lines, output of programs and errors, which the store and the history keep.
package secret

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"sync"
)

// Replacement stands for a secret.
const Replacement = "***"

// MinLength is the length in bytes from which a value is replaced. A shorter one occurs by chance, in numbers and words, and
// replacing it would hide more than it protects.
const MinLength = 8

// Masker replaces the values that Add has recorded, and nothing that is derived from them, such as a base64 form. The nil
// Masker replaces nothing. Its methods may be called concurrently.
type Masker struct {
	mu       sync.RWMutex
	values   []string // the longest first, so that one which contains another is replaced as a whole
	replacer *strings.Replacer
}

// Add records a value, and reports whether it is long enough.
func (m *Masker) Add(value string) bool {
	if m == nil || len(value) < MinLength {
		return m == nil || value == ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.values, value) {
		return true
	}
	m.values = append(m.values, value)
	slices.SortStableFunc(m.values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, v := range m.values {
		pairs = append(pairs, v, Replacement)
	}
	m.replacer = strings.NewReplacer(pairs...)
	return true
}

// Mask returns a text with the values replaced.
func (m *Masker) Mask(text string) string {
	if m == nil {
		return text
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.replacer == nil {
		return text
	}
	return m.replacer.Replace(text)
}

// pending returns the length of the longest end of text with which a value may begin.
func (m *Masker) pending(text string) int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	longest := 0
	for _, v := range m.values {
		for n := min(len(v)-1, len(text)); n > longest; n-- {
			if strings.HasPrefix(v, text[len(text)-n:]) {
				longest = n
			}
		}
	}
	return longest
}

// Error returns an error whose text has the values replaced. It is err if it has none of them; callers may use Unwrap only to find types
// of errors.
func (m *Masker) Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if masked := m.Mask(text); masked != text {
		return &maskedError{masked, err}
	}
	return err
}

// maskedError is an error with another text.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }

func (e *maskedError) Unwrap() error { return e.err }

// Filter returns a writer to w that replaces values, also those that several writes bring. Close writes what may have been
// the begin of a value, and does not close w.
func (m *Masker) Filter(w io.Writer) io.WriteCloser { return &filter{masker: m, to: w} }

type filter struct {
	masker *Masker
	to     io.Writer

	mu   sync.Mutex
	held string // the begin of a value, perhaps
}

// Write implements io.Writer.
func (f *filter) Write(p []byte) (int, error) {
	if f.masker == nil {
		return f.to.Write(p)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	text := f.held + string(p)
	masked := f.masker.Mask(text)
	// A value may be the begin of a longer one, so the end is held back as it was written, unless a value crosses the cut.
	n := len(text) - f.masker.pending(text)
	ready := f.masker.Mask(text[:n])
	if f.held = text[n:]; ready+f.masker.Mask(f.held) != masked {
		n = len(masked) - f.masker.pending(masked)
		ready, f.held = masked[:n], masked[n:]
	}
	if ready == "" {
		return len(p), nil
	}
	_, err := io.WriteString(f.to, ready)
	return len(p), err
}

// Close implements io.Closer.
func (f *filter) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == "" {
		return nil
	}
	_, err := io.WriteString(f.to, f.masker.Mask(f.held))
	f.held = ""
	return err
}
