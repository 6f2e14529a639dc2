// Package feed follows a directory of records: one watch, decoded once, for any number of readers.
// A reader gets the latest value of each record that has changed since it last looked.
package feed
