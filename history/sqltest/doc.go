// Package sqltest tests the SQL store of package history on PostgreSQL, MariaDB and SQLite. It contains only tests.
//
// PostgreSQL and MariaDB are the system's or from its packages, which are extracted into a cache. A server that is
// missing is a failure.
package sqltest
