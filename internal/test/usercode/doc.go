// Package usercode tests that code of users, such as handlers, strategies and methods of errors, stops no
// other job and no process, and that each call of it is one that a recover protects.
package usercode
