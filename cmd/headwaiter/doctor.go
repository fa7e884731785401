package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headwaiter/headwaiter/doctor"
)

// doctorLimit is far above what an examination takes, also where half of a cluster does not answer.
const doctorLimit = 30 * time.Second

// consultation is one call of doctor.
type consultation struct {
	redisFlags
	prefix string
	json   bool
}

func newDoctor() *cobra.Command {
	var c consultation
	cmd := &cobra.Command{
		Use:   "doctor [--redis URL] [--json]",
		Short: "Look at a Redis and say what endangers locks on it",
		Long:  doctorHelp,
		Example: `  headwaiter doctor --redis redis://headwaiter:secret@10.0.0.5:6379
  headwaiter doctor --redis 'redis://10.0.0.5:26379?master_set=mymaster'
  headwaiter doctor --redis rediss://cluster.internal:6379 --json | jq .report.warnings`,
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	c.flags(f)
	f.StringVar(&c.prefix, "prefix", "", "what the keys begin with: rights are looked at for these (default headwaiter)")
	f.BoolVar(&c.json, "json", false, "print JSON instead of text")
	return cmd
}

const doctorHelp = `Asks a Redis what it is and how it is set, all nodes of a cluster and the replicas too,
and says which settings endanger locks, why, and what to change. It changes nothing.

It needs the rights that locks need. INFO, CONFIG GET, CLUSTER INFO, CLUSTER NODES, ACL
WHOAMI and ACL GETUSER tell it more; what they would have told is called unknown
otherwise. Log on as the user that the locks use: rights are looked at for that one.

The URL names any one node of a cluster. With sentinels it names one of them, and in
master_set what they call the master; sentinel_user, sentinel_password and sentinel_tls
are how to log on to them. More addresses go into addr=host:port.

What it finds is of three kinds:
  danger    two can hold one lock, or nobody any, without any further fault
  caution   so under a fault (a restart, a failover), or slower than need be
  notice    good to know

Exit codes:
  0       nothing endangers locks by itself
  1       there is danger
  64      called wrongly
  69      Redis cannot be reached, or refuses what locks need`

// A diagnosis is what --json prints. Its names, and those of the report in it, stay.
type diagnosis struct {
	Redis      string         `json:"redis"` // the address, without its password
	Usable     bool           `json:"usable"`
	Endangered bool           `json:"endangered"`
	Error      *string        `json:"error"` // why it is not usable
	Report     *doctor.Report `json:"report"`
}

// run prints what there is to know, also of a server that cannot be used.
func (c *consultation) run(out io.Writer) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	o.Name, o.Prefix = "headwaiter doctor", c.prefix
	ctx, cancel := context.WithTimeout(context.Background(), doctorLimit)
	defer cancel()
	report, err := doctor.Examine(ctx, o)
	d := diagnosis{
		Redis: withoutPassword(c.redis), Usable: err == nil, Endangered: report.Endangered(),
	}
	if len(report.Servers) > 0 {
		d.Report = &report
	}
	if err != nil {
		if bad := badPrefix(err); bad != nil {
			return bad
		}
		why := reason(err, c.redis)
		d.Error = &why
		err = fail(exitUnavailable, "cannot use Redis at %s: %s", d.Redis, why)
	} else if d.Endangered {
		err = &failure{code: exitFindings}
	}
	if wrote := d.write(out, c.json); wrote != nil {
		return wrote
	}
	return err
}

func (d diagnosis) write(out io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(out, d)
	}
	if d.Report == nil {
		return nil // The error says all there is.
	}
	colours := false
	if file, ok := out.(*os.File); ok {
		colours = term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" && os.Getenv("NO_COLOR") == ""
	}
	for _, r := range d.rows() {
		text := r.Text
		if colours {
			text = r.Styled(text)
		}
		if _, err := io.WriteString(out, text+"\n"); err != nil {
			return err
		}
	}
	return nil
}
