// Package pools decides how the slots of a pool are dealt over a fleet, so that at most as many of its runs run at once as it has slots. [Deal] is the decision of the
// leader, [Share] that of an instance. Both are pure: loops of the leader and the claimer act on them.
//
// # Why the bound holds
//
// A slot is counted by the leader for as long as an incarnation may use it. A [record.Grant] is raised only by slots that are counted for nobody. An incarnation uses
// at most the slots of the grant that it observed last, however old that is. It also uses at most the number in its [record.Demand] for that grant, from the sending
// of the demand. For one grant these numbers only fall, so the leader may count the number that it reads, however old that is, if it is for the grant that is in force. Slots of an
// incarnation that is gone are free under the condition that its session has ended; a session ends for its own process before it ends for the store.
//
// So no clock is compared, and late watches, lost replies and leaders that change only delay: they free no slot that is in use.
package pools
