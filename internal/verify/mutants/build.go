package mutants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	here    = "internal/verify/mutants" // this folder, from the root
	scripts = "lua"                     // the folder of scripts that are read at run time
)

// scriptsFolder is the environment variable that names the folder of the scripts.
const scriptsFolder = "HEADWAITER_SCRIPTS"

// sourcesFile takes the place of lua/sources.go: it reads the scripts from a folder at run time, so that a
// mutant of a script needs no build.
const sourcesFile = `package lua

import (
	"cmp"
	"io/fs"
	"os"
)

var sources = os.DirFS(cmp.Or(os.Getenv(%q), %q)).(fs.ReadFileFS)
`

// A Bed is what mutants are run in: test programs that have the mutants in them, asleep. The tree itself is
// not changed; the go command is told to read other files in place of some.
type Bed struct {
	root     string
	dir      string            // a temporary folder
	overlay  string            // the file that tells the go command what to read
	alone    map[string]bool   // mutants that need a build of their own
	broken   map[string]string // mutants that do not compile, and what the compiler says
	programs map[string]string // by the folder of the package
}

// Build makes a bed for some mutants of the tree at root. All are planted, whichever are to run, so that the go command
// finds in its cache what an earlier run has compiled. Close removes the bed.
func Build(ctx context.Context, root string, chosen []Mutant) (*Bed, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	b := &Bed{root: root, dir: dir, alone: map[string]bool{}, broken: map[string]string{}, programs: map[string]string{}}
	for {
		err := b.build(ctx, all, chosen)
		if err == nil {
			return b, nil
		}
		// Mutants that do not compile are left out, and the others built again.
		named := broken(err)
		if len(named) == 0 {
			return nil, errors.Join(err, b.Close())
		}
		for _, name := range named {
			b.broken[name] = err.Error()
		}
		all = slices.DeleteFunc(all, func(m Mutant) bool { return b.broken[m.Name] != "" })
	}
}

var place = regexp.MustCompile(here + `/list/([^/]+)\.txt:\d+`)

// broken returns the mutants that the compiler names.
func broken(err error) (names []string) {
	for _, found := range place.FindAllStringSubmatch(err.Error(), -1) {
		names = append(names, found[1])
	}
	return names
}

// Close removes what Build has made.
func (b *Bed) Close() error { return os.RemoveAll(b.dir) }

func (b *Bed) at(file string) string { return filepath.Join(b.root, filepath.FromSlash(file)) }

// build plants mutants, and compiles the tests of those that are chosen.
func (b *Bed) build(ctx context.Context, planted, chosen []Mutant) error {
	files := map[string]string{
		scripts + "/sources.go": fmt.Sprintf(sourcesFile, scriptsFolder, b.at(scripts)),
	}
	of := map[string][]Mutant{}
	for _, m := range planted {
		switch {
		case m.readAtRunTime():
		case strings.HasSuffix(m.File, ".go"):
			of[m.File] = append(of[m.File], m)
		default:
			b.alone[m.Name] = true
		}
	}
	for file, some := range of {
		sound, err := os.ReadFile(b.at(file))
		if err != nil {
			return err
		}
		text, alone, err := plant(b.root, file, string(sound), some)
		if err != nil {
			return err
		}
		for _, m := range alone {
			b.alone[m.Name] = true
		}
		if text != "" {
			files[file] = text
		}
	}
	overlay, err := b.replace("all", files)
	if err != nil {
		return err
	}
	b.overlay = overlay
	return b.compileAll(ctx, chosen)
}

// compileAll builds the test programs of all packages that mutants name. One go command builds many, but no two whose
// folders have the same name.
func (b *Bed) compileAll(ctx context.Context, all []Mutant) error {
	clear(b.programs)
	var batches [][]string
	times := map[string]int{}
	for _, m := range all {
		if b.programs[m.Package] != "" {
			continue
		}
		name := path.Base(m.Package)
		n := times[name]
		times[name]++
		if n == len(batches) {
			batches = append(batches, nil)
		}
		batches[n] = append(batches[n], m.Package)
		b.programs[m.Package] = filepath.Join(b.batch(n), name+".test")
	}
	for n, folders := range batches {
		if err := os.MkdirAll(b.batch(n), 0o755); err != nil {
			return err
		}
		if err := b.compile(ctx, b.overlay, b.batch(n), folders...); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bed) batch(n int) string { return filepath.Join(b.dir, strconv.Itoa(n)) }

// readAtRunTime is whether the mutant is in a script that programs read when they start.
func (m Mutant) readAtRunTime() bool {
	return strings.HasPrefix(m.File, scripts+"/") && strings.HasSuffix(m.File, ".lua")
}

// replace writes what the go command is to read in place of some files, and returns the file that tells it so.
func (b *Bed) replace(name string, files map[string]string) (string, error) {
	dir := filepath.Join(b.dir, name)
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for file, text := range files {
		at := filepath.Join(dir, filepath.FromSlash(file))
		err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644))
		if err != nil {
			return "", err
		}
		overlay.Replace[b.at(file)] = at
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	at := dir + ".json"
	return at, os.WriteFile(at, text, 0o644)
}

// compile builds the test programs of packages into one folder, or one package's into a file.
func (b *Bed) compile(ctx context.Context, overlay, to string, folders ...string) error {
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", to}
	for _, folder := range folders {
		args = append(args, "./"+folder)
	}
	cmd := command(ctx, b.root, "go", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c: %w\n%s", err, out)
	}
	return nil
}

// command is a program that is interrupted, and not killed at once, when ctx ends, so that it ends what it has started.
func command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
