// Campaign runs what is shown with real processes and real servers, for as long as it is told, and writes what came of it
// into docs/campaign.md. A part of it is the tests of one kind: the faults of package chaos (of clients, of servers, of the
// network, failovers, the soak), and all primitives on networks in trouble. The parts take turns on the servers that scripts/server can fetch and on the one that is
// installed; what cannot be had is left out by name. After a part was on each server once in its short form it comes in its
// long one; with -long that is so as soon as each part has had its turn. With -least each part comes to each server, in its
// short form alone, and again until so many acquisitions were judged: so no part and no server has nearly all of them.
//
// The tests write down what they see (package evidence); the campaign counts that. It fails if a test does, if a history is
// not legal or could not be judged in time, if a recovery took longer than its bound, and if a part has judged nothing. A
// failed case stays in failed.tsv.
//
// With -deployments it runs the deployments and failovers of package chaos on each server instead, and writes the table of docs/deploy.md.
// With -judge it judges histories in files once more, and does nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	var c campaign
	var only, on string
	var deployments, short, judge bool
	flag.DurationVar(&c.lasts, "for", 10*time.Minute, "how long to begin with parts; the last one is finished")
	flag.StringVar(&only, "only", "", "parts, with commas: "+strings.Join(names(parts), ","))
	flag.StringVar(&on, "on", "", "servers, with commas: installed, and what scripts/server knows")
	flag.StringVar(&c.run, "run", "", "of the tests of these parts those that match")
	flag.BoolVar(&c.long, "long", false, "the long form, once each part has had its turn; without it, once each has been on all servers")
	flag.IntVar(&c.least, "least", 0, "how many acquisitions to judge at the least, with each part on each server")
	flag.StringVar(&c.page, "page", "docs/campaign.md", "where to write what came of it; nowhere if empty")
	flag.StringVar(&c.failed, "failed", "internal/verify/campaign/failed.tsv", "the table of all cases that ever failed, with -page")
	flag.StringVar(&c.histories, "histories", "", "a folder for the histories of some cases, and their pictures")
	flag.StringVar(&c.folder, "out", "out/campaign", "a folder for what failed tests have left")
	flag.BoolVar(&deployments, "deployments", false, "the deployments and failovers of package chaos on each server instead: the table of docs/deploy.md")
	flag.BoolVar(&short, "short", false, "with -deployments: some tests, and no table")
	flag.BoolVar(&judge, "judge", false, "judge the histories in the given files")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	servers := flag.Args()
	if on != "" {
		servers = strings.Split(on, ",")
	}
	var err error
	switch {
	case judge:
		err = judgeFiles(os.Stdout, flag.Args())
	case deployments:
		err = matrix(ctx, short, servers)
	default:
		err = c.start(ctx, only, servers)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "campaign:", err)
		stop()
		os.Exit(1)
	}
}
