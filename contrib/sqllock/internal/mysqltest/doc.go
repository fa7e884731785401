// Package mysqltest tests LockRow on MariaDB. It is a module of its own so that users of sqllock do not download the
// driver.
package mysqltest
