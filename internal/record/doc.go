// Package record defines the records in the registry: their keys, their JSON form, and the
// operations on watermarks and runs that planning and claiming share.
//
// Operators read the records with etcdctl or zkCli: instants are RFC 3339, and sets of shards
// are ranges ("0-3,7"). For fleets of mixed versions, unknown top-level fields of plans and of
// control records survive a rewrite.
package record
