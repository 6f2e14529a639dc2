// Package batch packs conditions and operations of many parts into few transactions, and finds the
// part that a conflict is about.
package batch
