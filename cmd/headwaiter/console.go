package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/console"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/internal/tty"
)

// defaultListen is where the console answers if nothing else is said.
const defaultListen = "127.0.0.1:7420"

// consoling is one call of console.
type consoling struct {
	lookout
	listen string
	allow  bool
}

func newConsole() *cobra.Command {
	var c consoling
	cmd := &cobra.Command{
		Use:   "console [flags]",
		Short: "Show locks in a browser: names, holders, queues, circles",
		Long:  consoleHelp,
		Example: `  headwaiter console --redis redis://10.0.0.5:6379
  headwaiter console --listen 127.0.0.1:8000 --allow-release`,
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	c.flags(f)
	f.StringVar(&c.listen, "listen", defaultListen, "where to answer browsers: a loopback address and a port")
	f.BoolVar(&c.allow, "allow-release", false, "let browsers release holds by force")
	return cmd
}

const consoleHelp = `Serves pages that show the names with their holders, for how long they are held and how
many wait; of a name the holder, the lease, the queue and the hand-offs, live; clients that
wait for each other in a circle; and what doctor says. It prints its address, and runs until
it is ended (^C). Pages are in the program: nothing comes from elsewhere.

It changes nothing, unless it is started with --allow-release: then a hold can be released
by force, after a question that shows its holder and its token. Each release is written to
stderr.

It answers on loopback alone, and asks for no password: whoever can log in on this machine
can open it. From another machine, forward the port: ssh -L 7420:127.0.0.1:7420 HOST. For
more, put a reverse proxy with TLS and a password before it that sends
Host: 127.0.0.1:7420.

It needs the rights of ls, and of release with --allow-release. Names are looked for at
most every three seconds, and only while a page is open; fifty thousand are kept.

Exit codes:
  0       it was ended by a signal
  64      called wrongly
  69      Redis cannot be reached, or refuses; or it cannot listen`

func (c *consoling) run(out, log io.Writer) error {
	address, err := loopback(c.listen)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	client, err := c.dial("console")
	if err != nil {
		return err
	}
	defer hangUp(client)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		why := err
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			why = op.Err
		}
		return fail(exitUnavailable, "console: cannot listen at %s: %v; say another port by --listen", address, why)
	}
	mode := "it only reads"
	if c.allow {
		mode = "it may release by force"
	}
	redis := withoutPassword(c.redis)
	fmt.Fprintf(out, "http://%s shows the locks of %s; %s\n", listener.Addr(), words.Shown(redis), mode)
	err = console.New(console.Options{Client: client, Redis: redis, Release: c.allow, Log: log, Report: reported}).Serve(ctx, listener)
	if err != nil {
		return fail(exitUnavailable, "console: %w", err)
	}
	return nil
}

// loopback is an address to listen at, if no other machine can reach it.
func loopback(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fail(exitUsage, "console: --listen %q: need an address and a port, as in --listen "+defaultListen, listen)
	}
	if host == "localhost" {
		host = "127.0.0.1" // Whatever this machine takes the name for.
	}
	if !net.ParseIP(host).IsLoopback() {
		return "", fail(exitUsage, "console: --listen %q: other machines could reach that, and the console asks for no password: "+
			"say --listen 127.0.0.1:%s, and put a reverse proxy before it; see headwaiter console --help", listen, port)
	}
	return net.JoinHostPort(host, port), nil
}

// reported is a diagnosis in the words of doctor.
func reported(r *doctor.Report, err error) (facts []tty.Row, result string) {
	d, p := diagnosis{Usable: err == nil, Endangered: r.Endangered(), Report: r}, &page{}
	p.facts(r)
	_, result = d.result(p.gaps)
	if err != nil {
		result += ": " + words.OneLine(err.Error())
	}
	return p.rows, result
}
