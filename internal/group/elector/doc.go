// Package elector has the loop that takes part in the elections of a group for an incarnation, and
// has it lead during its terms. Package election decides when to acquire the seat. The loop is
// level-triggered: it acts on the present state, so it may miss events.
package elector
