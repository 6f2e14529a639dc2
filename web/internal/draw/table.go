package draw

import "html/template"

// Table is a table of a page, such as that with the facts of a drawing. The template "table" shows it.
type Table struct {
	Head []string
	Rows []Row
}

// Row is a row. State is the class of its state, ID that by which a page is updated.
type Row struct {
	ID, State string
	Cells     []Text
}

// Text is a text that may be a link, and whose exact form may differ.
type Text struct {
	Text, Exact, Link string
	State             string        // the class of a state, which the text names; empty for most
	Drawing           template.HTML // in place of the text; empty for most
}
