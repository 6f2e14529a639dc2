// Package backend contains the parts that every backend of package registry needs, whatever
// its store: write the requests to the store, and leave the rest to this package.
//
// A backend has a [Handle] and calls it in each method:
//
//	func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
//		return c.handle.Get(ctx, key, o, func(ctx context.Context) (registry.Entry, error) {
//			// one request to the store
//		})
//	}
//
// The parts, each of which can be used without the others:
//
//   - [Handle] checks arguments before anything is sent, bounds each call, classifies errors,
//     and ends calls, watchers, sessions and goroutines when it is closed.
//   - [Session] is the client's side of a session: it sends renewals without waiting for the
//     answers to earlier ones, counts its safe-until from the sending of the last confirmed
//     one, on two clocks, and is Suspended and Lost in time.
//   - [Watcher] merges changes for a reader that may be slow, and delivers no older state after
//     a newer one. [Handle.Watch] keeps one up to date from a [Source], a list and the changes
//     after it.
//   - [Unavailable], [NotApplied] and [Unknown] classify errors; [EncodeValue] and
//     [DecodeValue] store the id of the transaction with a value.
//
// # Duties of a backend
//
//   - A transaction is sent at most once. After it may have left the process, only an answer of
//     the store proves that it was not applied.
//   - Changes are offered in the order of their commits, and a Source continues exactly after
//     the Rev of its list.
//   - Renew must not wait for an earlier Renew, nor for a connection that is dialed after the
//     session was opened.
//   - A request ends when its context does, also on a silent connection.
//
// Package conformance tests all of it. The guide is docs/writing-a-backend.md, and
// examples/mapstore is a complete backend.
package backend
