package member

// ChangeState calls change as the member's own changes of its state are made.
func (m *Member) ChangeState(change func()) { m.changeState(change) }
