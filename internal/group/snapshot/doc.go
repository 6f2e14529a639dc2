// Package snapshot holds the decoded records of a group, and the reasons why some cannot be read. It is filled with entries
// of the store: all of a group, those of one job, or what watches deliver. The order of the entries does not matter: after
// an update, it equals the snapshot that a new reading of the same records gives.
//
// One rule says which records count, for all that is computed from them: a record counts if it can be decoded, keeps the
// bounds, and names the job or incarnation that its key is for.
package snapshot
