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

// pages writes all that is made from files of results: into a folder, and as a page of the documentation.
func pages(results []string, out, docs string) error {
	r, err := report.Read(results...)
	if err != nil {
		return err
	}
	charts := report.Charts(r)
	err = errors.Join(
		report.HTMLFile(filepath.Join(out, "report.html"), r),
		report.MarkdownFile(filepath.Join(out, "report.md"), r, report.MakeBench, "pictures"),
		picture.Write(charts, filepath.Join(out, "pictures")),
		report.Histograms(r, filepath.Join(out, "histograms")),
	)
	if docs == "" || err != nil {
		return err
	}
	folder := strings.TrimSuffix(docs, filepath.Ext(docs))
	return errors.Join(report.MarkdownFile(docs, r, report.MakeBench, filepath.Base(folder)), picture.Write(charts, folder))
}

// remake is the word report.
func remake(args []string, out io.Writer) error {
	set := flag.NewFlagSet("bench report", flag.ContinueOnError)
	folder := set.String("out", "bench-results", "folder for the pages, pictures and histograms")
	docs := set.String("docs", "", "page of the documentation to write, with its pictures in a folder of the same name")
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
	if err := pages(files, *folder, *docs); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, filepath.Join(*folder, "report.html"))
	return err
}

// compareRuns is the word compare. It fails if something has become worse.
func compareRuns(args []string, out io.Writer) error {
	set := flag.NewFlagSet("bench compare", flag.ContinueOnError)
	o := compare.Defaults
	set.Float64Var(&o.Alpha, "alpha", o.Alpha, "probability below which a difference is no chance")
	set.Float64Var(&o.Least, "least", o.Least, "smallest part by which a median must have moved")
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
	rows := compare.Runs(old, new, o)
	if len(rows) == 0 {
		return errors.New("bench: compare: the two have no work in common")
	}
	if err := compare.Write(out, rows); err != nil {
		return err
	}
	for _, row := range rows {
		if row.Verdict == compare.Worse {
			return errors.New("bench: compare: something is worse")
		}
	}
	return nil
}

// filesAndFlags lets flags stand before, between and behind files.
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
