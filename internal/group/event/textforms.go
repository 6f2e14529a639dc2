package event

import "fmt"

// textForms are the text forms of the constants of an integer type that counts from 1.
type textForms[T ~int] []string

func (t textForms[T]) text(v T) string {
	if v < 1 || int(v) >= len(t) {
		return "unknown"
	}
	return t[v]
}

func (t textForms[T]) parse(v *T, text []byte) error {
	for i := 1; i < len(t); i++ {
		if t[i] == string(text) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("%.100q is none of %q", text, t[1:])
}
