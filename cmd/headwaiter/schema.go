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
postgres-lease need in a database. It makes what is not there and changes nothing else, so
it may run any number of times.`,
		Example:               "  headwaiter schema | psql postgres://user@host/database",
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), sqllock.Schema)
			return err
		},
	}
}
