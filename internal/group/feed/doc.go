// Package feed keeps a decoded replica of a directory of records. A feed has one watch, decodes each
// record once, and serves any number of readers. A reader drains the latest value of each record
// that has changed since its last drain.
package feed
