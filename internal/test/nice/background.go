// Package nice lets tests in virtual time give way to those that talk to real
// servers. The former take as long as they take; the latter watch clocks.
package nice
