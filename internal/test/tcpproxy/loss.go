package tcpproxy

import "slices"

// loss is an order to lose a reply.
type loss struct{ lost chan struct{} }

// LoseNextReply waits for the next bytes that any connection carries to the server, lets
// them through, and cuts that connection when the server sends something back, which the
// client does not get. lost is closed when that has happened. cancel takes the order back, if it was not
// carried out yet. It goes by bytes alone: what a request is only a Filter can know.
func (p *Proxy) LoseNextReply() (lost <-chan struct{}, cancel func()) {
	o := &loss{lost: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = append(p.lose, o)
	return o.lost, func() { p.cancelLoss(o) }
}

func (p *Proxy) cancelLoss(o *loss) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = slices.DeleteFunc(p.lose, func(other *loss) bool { return other == o })
	for k := range p.links {
		k.mu.Lock()
		if k.losing == o {
			k.losing = nil
		}
		k.mu.Unlock()
	}
}

// assignLoss takes an order to lose a reply, if there is one, before a request goes on.
func (k *link) assignLoss() {
	p := k.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.losing == nil && len(p.lose) > 0 {
		k.losing, p.lose = p.lose[0], p.lose[1:]
	}
}

// isLosing reports whether what comes back now is to be lost.
func (k *link) isLosing() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.losing != nil
}

// reportLoss is for when the connection has ended: no reply will come through.
func (k *link) reportLoss() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.losing != nil {
		close(k.losing.lost)
		k.losing = nil
	}
}
