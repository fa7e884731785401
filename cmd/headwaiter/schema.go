package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
)

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the SQL that locks on Postgres need",
		Long: `Prints the sequences, the table and the functions that --engine postgres and
postgres-lease need in a database. It makes what is not there, and brings the functions and
the storage settings of the table to those of this version, whatever was changed there. It
keeps tickets and counters, so it may run any number of times, one run at a time.`,
		Example:               "  headwaiter schema | psql postgres://user@host/database",
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), sqllock.Schema)
			return err
		},
	}
}
