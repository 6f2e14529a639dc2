package tcpproxy

import "slices"

// loss is an order to lose a reply.
type loss struct{ lost chan struct{} }

// LoseNextReply waits for the next bytes that any connection carries to the server,
// forwards them, and cuts that connection at the first byte of the reply. lost is closed
// when that has happened; cancel cancels a pending order. It works on bytes alone: only a
// Filter can recognize requests.
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

// assignLoss assigns a pending order to the link before it forwards a request.
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

// isLosing reports whether the next reply is to be lost.
func (k *link) isLosing() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.losing != nil
}

// reportLoss closes the order of a link that has ended, since no reply can arrive.
func (k *link) reportLoss() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.losing != nil {
		close(k.losing.lost)
		k.losing = nil
	}
}
