package notify

// incompleteError is the error of a message that the receiver accepted for some addresses only. It counts as delivered: the others
// would get a repetition.
type incompleteError struct{ error }

func (e *incompleteError) Unwrap() error { return e.error }
