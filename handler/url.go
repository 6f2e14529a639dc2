package handler

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/rota-dev/rota/executor"
)

// urlTemplate is a URL whose path and query have values of a run. Scheme, host and port are
// literal, and a value stays within its segment of the path or its parameter of the query.
type urlTemplate struct {
	origin   string // scheme, "://" and host
	segments []part // of the path, each after a slash
	query    part   // after the question mark
	hasQuery bool
}

// part is a sequence of literal text and values.
type part []piece

// piece is literal text, or a value if tmpl is not nil.
type piece struct {
	text string // of a value: its source, such as {{.Shard}}
	tmpl *template.Template
}

func (p part) hasValue() bool {
	return slices.ContainsFunc(p, func(piece piece) bool { return piece.tmpl != nil })
}

// parseURL parses the template of a URL.
func parseURL(text string) (*urlTemplate, error) {
	pieces, err := splitURL(text)
	if err != nil {
		return nil, err
	}
	u := &urlTemplate{}
	for _, p := range pieces {
		if err := u.add(p); err != nil {
			return nil, err
		}
	}
	sample, err := url.Parse(u.join(func(piece) string { return "x" }))
	switch {
	case err != nil:
		return nil, errors.Unwrap(err) // without the URL, which may have a password
	case sample.Scheme != "http" && sample.Scheme != "https":
		return nil, errors.New("does not begin with http:// or https://")
	case sample.Hostname() == "":
		return nil, errors.New("has no host")
	}
	// A layout of FireTime with a slash would fail each run, which shows without a run.
	var broken *segmentError
	if _, err := u.render(sampleView()); errors.As(err, &broken) {
		return nil, broken
	}
	return u, nil
}

func sampleView() view {
	return viewOf(&executor.Run{RunInfo: executor.RunInfo{
		ID: "x", Key: "x", Job: "x", Instance: "x", Shards: 1, Param: "x", ShardParam: "x",
		FireTime: time.Unix(0, 0), Attempt: 1, Trigger: 1, Fence: 1,
	}})
}

// segmentError is the error of a URL whose path would have other segments than its template.
type segmentError struct {
	source string // of the segment
	fault  string
}

func (e *segmentError) Error() string { return e.source + " " + e.fault }

// splitURL returns the pieces of a template. Only text and values are allowed, so that the place
// of each value in the URL is known.
func splitURL(text string) ([]piece, error) {
	t, err := parseTemplate("URL", text)
	if err != nil {
		return nil, err
	}
	var pieces []piece
	for _, n := range t.Root.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			if last := len(pieces) - 1; last >= 0 && pieces[last].tmpl == nil {
				pieces[last].text += string(n.Text) // a comment was between them
			} else {
				pieces = append(pieces, piece{text: string(n.Text)})
			}
			continue
		case *parse.ActionNode:
			if len(n.Pipe.Decl) == 0 {
				value, err := parseTemplate("URL", n.String())
				if err != nil {
					return nil, err
				}
				pieces = append(pieces, piece{n.String(), value})
				continue
			}
		}
		return nil, fmt.Errorf("%.100s: only values such as {{.Shard}} are allowed", n)
	}
	return pieces, nil
}

// add appends a piece at the end of the URL.
func (u *urlTemplate) add(p piece) error {
	if p.tmpl != nil {
		switch {
		case u.hasQuery:
			u.query = append(u.query, p)
		case len(u.segments) > 0:
			last := &u.segments[len(u.segments)-1]
			*last = append(*last, p)
		default:
			return fmt.Errorf("%s: a value may not be part of scheme, host or port", p.text)
		}
		return nil
	}
	if strings.Contains(p.text, "#") {
		return errors.New("has a fragment (#), which is never sent")
	}
	text := p.text
	if len(u.segments) == 0 && !u.hasQuery {
		text = u.addOrigin(text)
	}
	if u.hasQuery {
		u.query = append(u.query, piece{text: text})
		return nil
	}
	path, query, hasQuery := strings.Cut(text, "?")
	for i, s := range strings.Split(path, "/") {
		if i > 0 {
			u.segments = append(u.segments, nil)
		}
		if s != "" {
			last := &u.segments[len(u.segments)-1]
			*last = append(*last, piece{text: s})
		}
	}
	if hasQuery {
		u.hasQuery, u.query = true, part{{text: query}}
	}
	return nil
}

// addOrigin moves scheme and host from the beginning of text to the origin, and returns the rest. A
// rest that is not empty begins with a slash or question mark.
func (u *urlTemplate) addOrigin(text string) (rest string) {
	begin := 0
	if scheme, _, ok := strings.Cut(text, "://"); ok {
		begin = len(scheme) + len("://")
	}
	end := len(text)
	if i := strings.IndexAny(text[begin:], "/?"); i >= 0 {
		end = begin + i
	}
	u.origin += text[:end]
	return text[end:]
}

// join returns the URL with value(p) for each value.
func (u *urlTemplate) join(value func(piece) string) string {
	var b strings.Builder
	write := func(p part) {
		for _, piece := range p {
			if piece.tmpl == nil {
				b.WriteString(piece.text)
			} else {
				b.WriteString(value(piece))
			}
		}
	}
	b.WriteString(u.origin)
	for _, s := range u.segments {
		b.WriteByte('/')
		write(s)
	}
	if u.hasQuery {
		b.WriteByte('?')
		write(u.query)
	}
	return b.String()
}

// render returns the URL of a run. Many servers decode %2F, merge empty segments and resolve
// dots, so a value that results in one of these is refused.
func (u *urlTemplate) render(v view) (string, error) {
	for _, s := range u.segments {
		if !s.hasValue() {
			continue
		}
		text, err := s.render(v)
		switch {
		case err != nil:
			return "", err
		case strings.ContainsAny(text, `/\`):
			return "", &segmentError{s.source(), "has a slash or backslash, which would add a segment to the path"}
		case text == "" || text == "." || text == "..":
			return "", &segmentError{s.source(), fmt.Sprintf("is %q, which would remove a segment of the path", text)}
		}
	}
	var failed error
	text := u.join(func(p piece) string {
		value, err := render(p.tmpl, v)
		if err != nil && failed == nil {
			failed = err
		}
		return escapeValue(value)
	})
	return text, failed
}

// render returns the text of a part, not escaped.
func (p part) render(v view) (string, error) {
	var b strings.Builder
	for _, piece := range p {
		text := piece.text
		if piece.tmpl != nil {
			var err error
			if text, err = render(piece.tmpl, v); err != nil {
				return "", err
			}
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// source returns the part as written.
func (p part) source() string {
	var b strings.Builder
	for _, piece := range p {
		b.WriteString(piece.text)
	}
	return b.String()
}

// escapeValue escapes all bytes but those that have no meaning in any part of a URL.
func escapeValue(value string) string {
	var b strings.Builder
	for i := range len(value) {
		c := value[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
