package view

import "github.com/rota-dev/rota/operator"

// noteSection shows a note, which is broken into lines that fit; none for "".
func noteSection(note string) Section {
	if note == "" {
		return Section{}
	}
	return Section{Fields: []Field{{"note", note}}}
}

// IsEmpty reports whether a group has neither jobs nor instances, as after a mistake in its name.
func IsEmpty(st *operator.GroupStatus) bool {
	return len(st.Jobs)+len(st.Instances)+len(st.Unreadable) == 0
}
