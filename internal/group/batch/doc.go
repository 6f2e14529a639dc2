// Package batch packs the conditions and operations of many parts, such as the plans of many jobs, into
// few transactions, and maps the conflict of a transaction back to one part.
package batch
