// Package member keeps an instance in a group: it opens a session, creates and maintains the
// member record, runs a claimer and an elector under the session, and joins again when the
// session is lost.
package member
