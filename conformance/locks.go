package conformance

var lockCases = []Case{}
