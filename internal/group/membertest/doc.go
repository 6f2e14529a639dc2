// Package membertest runs groups of members on a registry in memory, in virtual time, for tests.
package membertest
