package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/headwaiter/headwaiter/bench/compare"
	"github.com/headwaiter/headwaiter/bench/report"
	"github.com/headwaiter/headwaiter/bench/report/picture"
)

// pages writes all that is made from files of results: into a folder, as a page of the documentation, and into the blocks
// of other pages.
func pages(results []string, out, docs string, fill []string) error {
	r, err := report.Read(results...)
	if err != nil {
		return err
	}
	charts := report.Charts(r)
	err = errors.Join(
		report.MarkdownFile(filepath.Join(out, "report.md"), r, "pictures"),
		picture.Write(charts, filepath.Join(out, "pictures")),
	)
	if err == nil && len(fill) > 0 {
		err = report.Fill(r, fill...)
	}
	if docs == "" || err != nil {
		return err
	}
	folder := strings.TrimSuffix(docs, filepath.Ext(docs))
	return errors.Join(report.PageFile(docs, r, filepath.Base(folder)), picture.Write(report.Paged(r), folder))
}

const (
	docsHelp = "page of the documentation to write, with its pictures in a folder of the same name"
	fillHelp = "pages whose blocks of figures to fill, each from <!-- bench: NAME --> to <!-- /bench -->"
)

// remake is the word report.
func remake(args []string, out io.Writer) error {
	set := flag.NewFlagSet("bench report", flag.ContinueOnError)
	folder := set.String("out", "bench-results", "folder for the page and pictures")
	docs := set.String("docs", "", docsHelp)
	fill := set.String("fill", "", fillHelp)
	files, err := filesAndFlags(set, args)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("bench: report wants files of results")
	}
	if err := os.MkdirAll(*folder, 0o755); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if err := pages(files, *folder, *docs, parseList(*fill)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, filepath.Join(*folder, "report.md"))
	return err
}

// compareRuns is the word compare. It fails if something has become worse.
func compareRuns(args []string, out io.Writer) error {
	set := flag.NewFlagSet("bench compare", flag.ContinueOnError)
	files, err := filesAndFlags(set, args)
	if err != nil {
		return err
	}
	if len(files) != 2 {
		return errors.New("bench: compare wants two files: the old results and the new")
	}
	old, err := report.Read(files[0])
	if err != nil {
		return err
	}
	new, err := report.Read(files[1])
	if err != nil {
		return err
	}
	return judge(compare.Runs(old, new), out)
}

// judge prints what has changed. It fails if something has become worse.
func judge(rows []compare.Row, out io.Writer) error {
	if len(rows) == 0 {
		return errors.New("bench: compare: the two have no pair in common: measure with -pairs")
	}
	if err := compare.Write(out, rows); err != nil {
		return err
	}
	if what := compare.Worsened(rows); what != "" {
		return fmt.Errorf("bench: compare: worse: %s", what)
	}
	return nil
}

// filesAndFlags lets flags stand before, between and after files.
func filesAndFlags(set *flag.FlagSet, args []string) (files []string, err error) {
	for {
		if err := set.Parse(args); err != nil {
			return nil, err
		}
		if set.NArg() == 0 {
			return files, nil
		}
		files = append(files, set.Arg(0))
		args = set.Args()[1:]
	}
}
