// Package nice lowers the CPU priority of tests in virtual time, so that tests with real
// servers, which depend on the clock, run undisturbed.
package nice
