// Package coordtest has fixtures for tests of coordinator's packages.
package coordtest
