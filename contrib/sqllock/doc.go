// Package sqllock has the tests of fence.SQL and fence.Row on a real Postgres. They are in a module of their own so
// that no user of the library downloads a driver.
package sqllock
