package draw

// Table is a table with the facts of a drawing. Its fields are those that the layout's templates for tables use.
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
type Text struct{ Text, Exact, Link string }
