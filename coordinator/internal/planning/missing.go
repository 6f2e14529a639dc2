package planning

// Complete reports whether the view has both records of an incarnation.
func (v *View) HasBothRecords(incarnation string) bool {
	_, known := v.Members[incarnation]
	return known && v.Alive(incarnation)
}
