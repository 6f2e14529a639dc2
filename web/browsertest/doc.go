// Package browsertest tests the console in a browser: each page under a prefix, with and without scripts, by keyboard only, at the
// width of a phone, against its content security policy and the rules of axe-core. It contains only tests.
//
// The browser is Debian's Chromium, the system's or from its packages, and axe-core is a package of npm; both come into a cache. What is
// missing is a failure.
package browsertest
