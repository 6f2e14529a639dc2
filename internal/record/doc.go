// Package record defines what is stored in the registry: where each record lives, its
// JSON form, and the small algebra on watermarks that planning and claiming share.
//
// Times are RFC 3339, shards are ranges ("0-3,7"), and fields that this version does not
// know survive a rewrite, so that fleets of mixed versions and curious operators with
// etcdctl or zkCli get along.
package record
