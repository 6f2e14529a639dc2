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
