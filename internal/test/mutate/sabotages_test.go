package main

// memorySabotages are sabotages of registry/memory.
var memorySabotages = []sabotage{
	{
		"watchers65", "Registry.Watch 1", "delivers a commit to 64 watchers of a directory", "W04", "follow \"d",
		[]replacement{{"server.go", "\t\tfor _, w := range d.watchers {\n", `
		reached := 0
		for _, w := range d.watchers {
			if reached++; reached > 64 && SABOTAGED {
				break
			}
`}},
	},
	{
		"sessions65", "Session 1", "renews 64 sessions of a handle", "S27", "session is lost",
		[]replacement{
			{"renewal.go", "\tm := x.client.machine\n\tif !x.alive", `
	m := x.client.machine
	if SABOTAGED {
		return false
	}
	if !x.alive`},
			{"renewal.go", "\tx.sendFlight(flight{sent: at, way: Requests}, at)\n", `
	if SABOTAGED && slices.Index(x.client.machine.sessions, x) >= 64 {
		return
	}
	x.sendFlight(flight{sent: at, way: Requests}, at)
`},
		},
	},
	{
		"owned1000", "package 3", "deletes 1,000 keys of a session that ends", "E13", "hold together",
		[]replacement{{"session.go", "\tgone := slices.Sorted(maps.Keys(x.owned))\n", `
	gone := slices.Sorted(maps.Keys(x.owned))
	if SABOTAGED {
		gone = gone[:min(len(gone), 1000)]
	}
`}},
	},
	{
		"closeMany", "Registry.Close 1", "closes 64 sessions of a handle", "H05", "keys of",
		[]replacement{{"client.go", "\ts.mu.Unlock()\n\n\tif err := endSessions(ctx, c, open)", `
	if SABOTAGED {
		open = open[:min(len(open), 64)]
	}
	s.mu.Unlock()

	if err := endSessions(ctx, c, open)`}},
	},
	{
		"renew256", "Session 1", "sends 256 renewals of a session", "S03", "session is",
		[]replacement{
			{"session.go", "\tresting bool\n", "\tresting bool\n\trenewals int\n"},
			{"renewal.go", "\tif !x.alive || x.state", `
	if SABOTAGED {
		return false
	}
	if !x.alive || x.state`},
			{"renewal.go", "\tx.next = at.Add(x.interval())\n", `
	x.next = at.Add(x.interval())
	if x.renewals++; x.renewals > 256 && SABOTAGED {
		return
	}
`},
		},
	},
	{
		"ttlWhole", "Session.State 2", "counts TTLs in whole seconds", "S28", "before safe-until",
		[]replacement{
			{"session.go", "x.expires = time.Now().Add(x.ttl)", "x.expires = time.Now().Add(x.storeTTL())"},
			{"renewal.go", "received.Add(m.requests.delay+x.ttl)", "received.Add(m.requests.delay+x.storeTTL())"},
			{"renewal.go", "at.Add(x.ttl)", "at.Add(x.storeTTL())"},
			{"session.go", "func (x *session) addOwned(", `
func (x *session) storeTTL() time.Duration {
	if SABOTAGED {
		return max(x.ttl.Truncate(time.Second), 1)
	}
	return x.ttl
}

func (x *session) addOwned(`},
		},
	},
	{
		"ttlCap", "Registry.OpenSession 2", "ends a session of a TTL above a minute after a minute", "S28", "with a TTL of",
		[]replacement{
			{"session.go", "max(x.ttl.Truncate(time.Second), 1)\n\t}\n", `max(x.ttl.Truncate(time.Second), 1)
	}
	if SABOTAGED {
		return min(x.ttl, time.Minute)
	}
`},
			{"renewal.go", "\tif !x.alive || x.state", `
	if SABOTAGED && x.ttl > time.Minute {
		return false
	}
	if !x.alive || x.state`},
		},
	},
	{
		"changedThird", "Session.Changed 1", "reports three changes of state by Changed", "S17", "the sequence of states",
		[]replacement{
			{"session.go", "\trenewals int\n", "\trenewals int\n\tchanges int\n"},
			{"session.go", "\tx.state = state\n\tclose(x.changed)\n", `
	x.state = state
	if x.changes++; x.changes > 4 && SABOTAGED { // the first is the opening
		return
	}
	close(x.changed)
`},
		},
	},
	{
		"openDeadline", "Registry.OpenSession 3", "ends a session at the deadline of the context it was opened with", "S16", "session is lost",
		[]replacement{{"session.go", "\treturn x, nil\n", `
	if d, ok := ctx.Deadline(); ok && SABOTAGED {
		time.AfterFunc(time.Until(d), func() { c.server.ExpireSession(x.id) })
	}
	return x, nil
`}},
	},
	{
		"secondCloseNil", "Session.Close 2", "returns nil from the second Close, whatever the first returned", "S29", "the second Close",
		[]replacement{{"session.go", "\tx.finishClientSide(registry.SessionClosed, registry.ErrClosed)\n\tendKnown := x.endKnown\n", `
	again := x.state == registry.SessionClosed
	x.finishClientSide(registry.SessionClosed, registry.ErrClosed)
	endKnown := x.endKnown || again && SABOTAGED
`}},
	},
	{
		"handleCloseClosed", "Registry.Close 1", "leaves out a session whose own Close failed when its handle closes", "H09", "whose own Close failed",
		[]replacement{{"client.go", "x.client == c && !x.endKnown", "x.client == c && !x.endKnown && !(SABOTAGED && x.state == registry.SessionClosed)"}},
	},
	{
		"handleCloseLost", "Session.Close 5", "leaves out a session that is Lost by its own clock when its handle closes", "H09", "lost by its own clock",
		[]replacement{{"client.go", "x.client == c && !x.endKnown", "x.client == c && !x.endKnown && !(SABOTAGED && x.state == registry.SessionLost)"}},
	},
	{
		"closeCauseless", "Registry 5", "gives no cause for the error of Close of a handle", "H06", "the context ended by",
		[]replacement{{"client.go", "\t\treturn fmt.Errorf(\"close: %w\", backend.Unavailable(err))\n", `
		if SABOTAGED {
			return registry.ErrUnavailable
		}
		return fmt.Errorf("close: %w", backend.Unavailable(err))
`}},
	},
	{
		"sessCloseCause", "Registry 5", "gives the error of the context in place of its cause when Close of a session fails", "S29", "the caller has ended",
		[]replacement{{"session.go", "\t\treturn fmt.Errorf(\"close session %s: %w\", x.id, backend.Unavailable(err))\n", `
		if SABOTAGED && ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("close session %s: %w", x.id, backend.Unavailable(err))
`}},
	},
	{
		"suspendedOwned", "ErrSessionLost 1", "refuses the owned keys of a suspended session", "E15", "of a suspended session",
		[]replacement{{"txn.go", "s.sessions[o.Session] == nil {", "(s.sessions[o.Session] == nil || SABOTAGED && s.sessions[o.Session].state == registry.SessionSuspended) {"}},
	},
	{
		"guessNotApplied", "ErrNotApplied 1", "reports a transaction without an answer in time as not applied", "F30", "still exists",
		[]replacement{{"client.go", "\t\treturn registry.Rev{}, fmt.Errorf(\"commit: %w\", backend.Unknown(err))\n", `
		if SABOTAGED && err == errNoAnswer {
			return registry.Rev{}, fmt.Errorf("commit: %w: %w", registry.ErrNotApplied, err)
		}
		return registry.Rev{}, fmt.Errorf("commit: %w", backend.Unknown(err))
`}},
	},
	{
		"bigDelete", "Registry.List 1", "lists a deleted key of more than 64 KiB", "Z10", "bytes",
		[]replacement{{"txn.go", "\tdelete(n.dir.nodes, key)\n", `
	if !SABOTAGED || len(n.entry.Value) <= 64<<10 {
		delete(n.dir.nodes, key)
	}
`}},
	},
	{
		"ghostGet", "Registry.Get 3", "gets an owned key after a list without it", "R13", "after a List without it",
		[]replacement{
			{"server.go", "\trecording bool\n", "\trecording bool\n\tghosts, ghostUntil sync.Map\n"},
			{"session.go", "\tfor _, key := range gone {\n", `
	for _, key := range gone {
		s.ghosts.Store(key, s.nodes[key].entry)
`},
			{"client.go", "\tm.reads.Add(1)\n\tif v := s.viewOf(m, fresh); v != nil {\n\t\treturn v.children(dir)", `
	if SABOTAGED && !fresh {
		s.ghosts.Range(func(key, _ any) bool {
			if key.(registry.Key).Dir() == dir {
				s.ghostUntil.LoadOrStore(key, time.Now().Add(5*time.Millisecond))
			}
			return true
		})
	}
	m.reads.Add(1)
	if v := s.viewOf(m, fresh); v != nil {
		return v.children(dir)`},
			{"client.go", "\tif n := s.nodes[key]; n != nil {\n\t\treturn n.entry\n\t}\n", `
	if n := s.nodes[key]; n != nil {
		return n.entry
	}
	if until, ok := s.ghostUntil.Load(key); ok && !fresh && time.Now().Before(until.(time.Time)) {
		e, _ := s.ghosts.Load(key)
		return e.(*registry.Entry)
	}
`},
			{"client.go", "\t\"slices\"\n", "\t\"slices\"\n\t\"time\"\n"},
		},
	},
	{
		"batchNoView", "Batch.Rev 1", "answers plain reads after a batch of deletes from an older state", "R14", "after a batch",
		[]replacement{{"watch.go", "\t\t\tw.client.server.lockAndRefreshView(w.client.machine)\n", `
			if !SABOTAGED || len(b.Puts) > 0 {
				w.client.server.lockAndRefreshView(w.client.machine)
			}
`}},
	},
	{
		"closedKeeps", "Watcher.Next 2", "delivers pending changes after Close", "W22", "Next after Close",
		[]replacement{{"watch.go", "\t\tw.err, w.pending = err, nil\n", `
		if w.err = err; !SABOTAGED {
			w.pending = nil
		}
`}},
	},
	{
		"restartSeq", "Rev.Seq 2", "takes its Seq from the stored keys when it restarts", "S04", "Seq grows across the restart",
		[]replacement{{"controls.go", "\t\ts.queue = nil\n\t\tfor _, m := range s.all() {\n", `
		s.queue = nil
		if SABOTAGED {
			s.seq = 1
			for _, n := range s.nodes {
				s.seq = max(s.seq, n.entry.Modified.Seq)
			}
		}
		for _, m := range s.all() {
`}},
	},
	{
		"secondCut", "Registry.Watch 6", "resends nothing after the second disconnection of a machine", "W07", "follow \"d\"",
		[]replacement{
			{"machine.go", "\tcounters\n}", "\tcounters\n\tbreaks int\n}"},
			{"controls.go", "\t\tm.replies.cut()\n\t\tm.restartWatchers()\n", `
		m.replies.cut()
		if m.breaks++; m.breaks == 1 || !SABOTAGED {
			m.restartWatchers()
		}
`},
			{"controls.go", "\t\tm.requests.cuts--\n\t\tm.replies.cuts--\n", `
		m.requests.cuts--
		m.replies.cuts--
		for _, w := range m.watchers {
			if SABOTAGED && m.breaks > 1 {
				w.pending = nil
			}
		}
`},
		},
	},
	{
		"recreatedDropped", "Registry.Watch 5", "drops a key that was deleted and created empty between two Next", "W10", "follow \"d\"",
		[]replacement{{"watch.go", "\t\tw.pending[c.key] = c.entry\n", `
		if e, there := w.pending[c.key]; there && e == nil && c.entry != nil && len(c.entry.Value) == 0 && SABOTAGED {
			delete(w.pending, c.key)
			continue
		}
		w.pending[c.key] = c.entry
`}},
	},
	{
		"setOwnedSilent", "Registry.Watch 1", "does not deliver a Set of an owned key", "E05", "follow \"d\"",
		[]replacement{{"txn.go", "\t\ts.recordChange(n.dir, e.Key, &e)\n", `
		if !SABOTAGED || e.Owner == "" {
			s.recordChange(n.dir, e.Key, &e)
		}
`}},
	},
	{
		"watchDelayed", "Registry.Watch 2", "reads the snapshot of a watch with its request and follows from its reply on", "W35", "follow \"d",
		[]replacement{
			{"watch.go", "\terr     error        // the reason of the end\n", "\terr error\n\tfirst *registry.Batch\n"},
			{"watch.go", "\tif err := c.sendRepeatable(ctx, repeatable, func() error { return s.permissionError(c.machine) }); err != nil {\n", `
	var first registry.Batch
	if err := c.sendRepeatable(ctx, repeatable, func() error {
		first = registry.Batch{Kind: registry.Snapshot, Rev: s.rev(), Puts: copySorted(s.children(dir))}
		return s.permissionError(c.machine)
	}); err != nil {
`},
			{"watch.go", "\treturn c.addWatcher(ctx, dir), nil\n}\n\nfunc (c *Client) addWatcher", `
	w := c.addWatcher(ctx, dir)
	if SABOTAGED {
		w.first, w.resync = &first, false
	}
	return w, nil
}

func (c *Client) addWatcher`},
			{"watch.go", "\t\tb, err := w.takeDelta()\n", `
		if w.first != nil {
			b := *w.first
			w.first = nil
			return b, nil
		}
		b, err := w.takeDelta()
`},
		},
	},
	{
		"closeTwin", "Registry 2", "ends, with its own watchers, those of other handles of the machine", "H07", "follow",
		[]replacement{{"client.go", "\tfor _, w := range c.watchers {\n\t\tw.end(backend.ErrHandleClosed)\n", `
	for _, w := range c.watchers {
		if SABOTAGED {
			for _, o := range c.machine.watchers {
				o.end(backend.ErrHandleClosed)
			}
		}
		w.end(backend.ErrHandleClosed)
`}},
	},
	{
		"getShares", "Registry.Get 2", "returns the stored slice of a value of more than 4 KiB", "Z10", "the value of",
		[]replacement{{"client.go", "\tc.Value = append(buf[:0], e.Value...)\n", `
	if SABOTAGED && len(e.Value) > 4096 && buf == nil {
		return c
	}
	c.Value = append(buf[:0], e.Value...)
`}},
	},
	{
		"freshLag", "Registry.Get 4", "answers a Fresh List of a member that is behind from its state", "R14", "lists not the one key",
		[]replacement{{"client.go", "\tif v := s.viewOf(m, fresh); v != nil {\n\t\treturn v.children(dir)", `
	if v := m.view.Load(); v != nil && SABOTAGED {
		return v.children(dir), v.rev
	}
	if v := s.viewOf(m, fresh); v != nil {
		return v.children(dir)`}},
	},
	{
		"listLong", "Registry.List 1", "orders a list by the first 24 bytes of its keys", "Z04", "in order",
		[]replacement{{"client.go", "func(a, b *registry.Entry) int { return cmp.Compare(a.Key, b.Key) })", `func(a, b *registry.Entry) int {
		if SABOTAGED {
			return cmp.Compare(a.Key[:min(24, len(a.Key))], b.Key[:min(24, len(b.Key))])
		}
		return cmp.Compare(a.Key, b.Key)
	})`}},
	},
	{
		"resendSlow", "Registry.Txn 3", "sends a transaction again that was not answered within a second", "F31", "sent again",
		[]replacement{{"client.go", "\terr := c.sendOnce(ctx, func() error {\n\t\to = c.server.serveTxn(c.machine, t)\n\t\treturn nil\n\t})\n", `
	if SABOTAGED {
		again := time.AfterFunc(time.Second, func() {
			_ = c.sendOnce(context.Background(), func() error { c.server.serveTxn(c.machine, t); return nil })
		})
		defer again.Stop()
	}
	err := c.sendOnce(ctx, func() error {
		o = c.server.serveTxn(c.machine, t)
		return nil
	})
`}},
	},
	{
		"mergeKeepsPut", "Registry.Watch 5", "delivers a key that was created and deleted between two Next", "W10", "follow",
		[]replacement{{"watch.go", "\tfor _, c := range changes {\n", `
	for _, c := range changes {
		if e := w.pending[c.key]; e != nil && c.entry == nil && e.Created == e.Modified && SABOTAGED {
			continue
		}
`}},
	},
	{
		"errAfterClose", "Session.Err 1", "reports ErrClosed for a lost session whose handle was closed", "H09", "the reason of the loss",
		[]replacement{{"client.go", "\tvar open []*session\n", `
	for _, x := range c.machine.sessions {
		if SABOTAGED && x.client == c && x.state == registry.SessionLost {
			x.err = registry.ErrClosed
		}
	}
	var open []*session
`}},
	},
	{
		"idsAfterRestart", "SessionID 2", "counts session IDs from the beginning after a restart", "S04", "the ID of a session",
		[]replacement{
			{"session.go", "\tif x.ttl <= 0 {\n", `
	if SABOTAGED {
		c.server.mu.Lock()
		c.server.opened++
		x.id = registry.SessionID(fmt.Sprintf("s%d", c.server.opened))
		c.server.mu.Unlock()
	}
	if x.ttl <= 0 {
`},
			{"server.go", "\trecording bool\n", "\trecording bool\n\topened int\n"},
			{"controls.go", "\t\ts.extendSessions()\n\t}, s.all()...)\n", `
		s.extendSessions()
		s.opened = 0
	}, s.all()...)
`},
		},
	},
	{
		"deleteDeep", "Delete 2", "deletes with a key what is two levels below it", "T19", "x/y/z",
		[]replacement{{"txn.go", "\t\ts.removeNode(n)\n", `
		s.removeNode(n)
		for key, below := range s.nodes {
			if SABOTAGED && len(key) > len(o.Key) && key.Dir().Dir() == o.Key {
				s.removeNode(below)
			}
		}
`}},
	},
	{
		"closedCheck", "ErrClosed 1", "serves a transaction without operations on a closed handle", "H02", "Txn without operations",
		[]replacement{{"client.go", "\treturn c.sendTxn(ctx, t)\n", `
	if SABOTAGED && len(t.Then) == 0 {
		return registry.Rev{Seq: 1}, nil
	}
	return c.sendTxn(ctx, t)
`}},
	},
	{
		"closeLeavesWatch", "Registry.Close 1", "leaves a pending call of Watch waiting when it closes", "H04", "still blocked",
		[]replacement{{"watch.go", "\tw, err := c.watch(ctx, dir)\n", `
	if SABOTAGED {
		_ = c.server.roundTrip(ctx, c.machine, repeatable, func() error { return nil }, nil)
	}
	w, err := c.watch(ctx, dir)
`}},
	},
	{
		"aliasLarge", "Set 1", "keeps the caller's slice of a value of more than 4 KiB", "Z10", "bytes",
		[]replacement{{"txn.go", "\t\te.Value, e.Modified, e.Txn = bytes.Clone(o.Value), s.rev(), id\n", `
		e.Value, e.Modified, e.Txn = bytes.Clone(o.Value), s.rev(), id
		if SABOTAGED && len(o.Value) > 4096 {
			e.Value = o.Value
		}
`}},
	},
	{
		"bufferLarge", "ReadOptions.Buffer 1", "ignores the Buffer for a value of more than 4 KiB", "Z10", "fits the buffer",
		[]replacement{{"client.go", "\tc := *e\n", `
	c := *e
	if SABOTAGED && len(e.Value) > 4096 {
		buf = nil
	}
`}},
	},
	{
		"handles33", "Registry 2", "delivers no change to the 33rd handle of a store", "H10", "follow",
		[]replacement{
			{"server.go", "\ttouched []*directory", "\tclients int\n\ttouched []*directory"},
			{"server.go", "\tdefer s.mu.Unlock()\n\treturn &Client{\n", "\tdefer s.mu.Unlock()\n\ts.clients++\n\treturn &Client{\n\t\tordinal: s.clients,\n"},
			{"client.go", "\tisClosed bool\n", "\tisClosed bool\n\tordinal int\n"},
			{"watch.go", "\tw.mu.Lock()\n\tdefer w.mu.Unlock()\n\tif w.resync {\n", `
	w.mu.Lock()
	defer w.mu.Unlock()
	if SABOTAGED && w.client.ordinal > 32 {
		return
	}
	if w.resync {
`},
		},
	},
	{
		"pending1024", "Registry.Watch 5", "keeps 1,024 changes for a reader", "W27", "follow",
		[]replacement{{"watch.go", "\tw.rev = rev\n", `
	for key := range w.pending {
		if SABOTAGED && len(w.pending) > 1024 {
			delete(w.pending, key)
		}
	}
	w.rev = rev
`}},
	},
	{
		"calls64", "Registry 3", "refuses a call while 64 are under way", "F27", "not applied",
		[]replacement{
			{"client.go", "\tisClosed bool\n", "\tisClosed bool\n\tcalls atomic.Int64\n"},
			{"client.go", "\t\"slices\"\n", "\t\"slices\"\n\t\"sync/atomic\"\n"},
			{"client.go", "\tselect {\n\tcase <-c.closed: // not unknown", `
	if defer_ := c.calls.Add(1); defer_ > 64 && SABOTAGED {
		c.calls.Add(-1)
		return registry.Rev{}, fmt.Errorf("commit: %w", registry.ErrNotApplied)
	}
	defer c.calls.Add(-1)
	select {
	case <-c.closed: // not unknown`},
		},
	},
	{
		"idleHour", "Registry.Watch 7", "forgets a watcher that had no change for an hour", "W36", "a Next that began",
		[]replacement{
			{"watch.go", "\tsevered bool         // no Snapshot can be read\n", "\tsevered bool\n\tlastAt time.Time\n"},
			{"watch.go", "\tif w.resync {\n\t\treturn // the", `
	if SABOTAGED && !w.lastAt.IsZero() && time.Since(w.lastAt) > time.Hour {
		return
	}
	w.lastAt = time.Now()
	if w.resync {
		return // the`},
		},
	},
	{
		"cutHour", "Registry.Watch 6", "gives a watcher up that was disconnected for an hour", "F32", "follow",
		[]replacement{
			{"machine.go", "\tcounters\n", "\tcounters\n\tcutAt time.Time\n"},
			{"controls.go", "\t\tm.replies.cut()\n", "\t\tm.replies.cut()\n\t\tm.cutAt = time.Now()\n"},
			{"controls.go", "\t\tm.replies.cuts--\n", `
		m.replies.cuts--
		for _, w := range m.watchers {
			if SABOTAGED && time.Since(m.cutAt) > time.Hour-time.Minute {
				w.resync = false
			}
		}
`},
		},
	},
	{
		"answerAfterClose", "SessionClosed 2", "connects a session again by an answer that arrives after its Close", "S30", "session",
		[]replacement{{"renewal.go", "\tcase x.isOpen():\n", `
	case SABOTAGED && x.state == registry.SessionClosed:
		x.setState(registry.SessionConnected)
	case x.isOpen():
`}},
	},
	{
		"listAtPrefix", "Registry.List 1", "lists the children of a directory whose name continues with a digit", "K10", "a/b0/x",
		[]replacement{{"server.go", "\tfor _, n := range d.nodes {\n\t\tfound = append(found, n.entry)\n\t}\n", `
	for _, n := range d.nodes {
		found = append(found, n.entry)
	}
	for path, other := range s.dirs {
		if SABOTAGED && path == dir+"0" && dir != "" {
			for _, n := range other.nodes {
				found = append(found, n.entry)
			}
		}
	}
`}},
	},
	{
		"txnIDZero", "Txn.ID 2", "draws one ID for all transactions of a handle without one", "K18", "a drawn id is used twice",
		[]replacement{
			{"client.go", "\tt.ID = t.ID.OrNew()\n", `
	if zero := (registry.TxnID{}); SABOTAGED && t.ID == zero {
		t.ID = c.drawn.OrNew()
		if len(t.Then) > 2 {
			c.drawn = t.ID
		}
	}
	t.ID = t.ID.OrNew()
`},
			{"client.go", "\tisClosed bool\n", "\tisClosed bool\n\tdrawn registry.TxnID\n"},
		},
	},
}

// backendSabotages are sabotages of registry/backend.
var backendSabotages = []sabotage{
	{
		"renew256", "Session 1", "sends 256 renewals of a session", "S03", "session is",
		[]replacement{
			{"session.go", "\tstarved   int\n", "\tstarved   int\n\trenewals int\n"},
			{"session.go", "\t\ts.handle.Go(func() { s.sendRenewal(now, s.c.Span) })\n", `
		if s.renewals++; s.renewals <= 256 || !SABOTAGED {
			s.handle.Go(func() { s.sendRenewal(now, s.c.Span) })
		}
`},
		},
	},
	{
		"closeMany", "Registry.Close 1", "closes 64 sessions of a handle", "H05", "keys of",
		[]replacement{{"handle.go", "\terrs := make([]error, len(sessions))\n", `
	if SABOTAGED {
		sessions = sessions[:min(len(sessions), 64)]
	}
	errs := make([]error, len(sessions))
`}},
	},
}
