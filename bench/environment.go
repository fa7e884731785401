package bench

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Environment is what absolute figures depend on.
type Environment struct {
	At     time.Time `json:"at"`
	Commit string    `json:"commit,omitempty"` // of the working directory; a + after it if something was changed
	Go     string    `json:"go"`
	System string    `json:"system"`
	Kernel string    `json:"kernel,omitempty"`
	CPU    string    `json:"cpu,omitempty"`
	CPUs   int       `json:"cpus"`
	Load   float64   `json:"load"` // of the last minute before the run; 0 where it cannot be read
	Redis  string    `json:"redis"`
	// Settings are those of the server that matter here, as far as it tells them.
	Settings map[string]string `json:"settings,omitempty"`
	// Contenders are the libraries, with their versions and settings.
	Contenders []Entry `json:"contenders"`
	// About is the rest: the versions of other servers.
	About  map[string]string `json:"about,omitempty"`
	Rounds int               `json:"rounds"`
	Slice  string            `json:"slice"`
	// Restless: rounds count though a floor moved. Where the machine stops calls as it likes, nothing is said of their order.
	Restless bool `json:"restless,omitempty"`
}

// Entry is a contender in a list.
type Entry struct {
	Name    string `json:"name"`
	About   string `json:"about,omitempty"`
	Fair    bool   `json:"fair,omitempty"`
	Polls   bool   `json:"polls,omitempty"`
	Missing string `json:"missing,omitempty"`
}

func (e Environment) fair(contender string) bool {
	return slices.ContainsFunc(e.Contenders, func(c Entry) bool { return c.Name == contender && c.Fair })
}

// telling are the settings of a Redis that decide what a lock costs or survives.
var telling = []string{"save", "appendonly", "maxmemory", "maxmemory-policy", "io-threads", "hz"}

func (r *runner) environment(ctx context.Context) (Environment, error) {
	version, err := r.observer.version(ctx)
	if refused, is := rueidis.IsRedisErr(err); is {
		// A server of others may not tell what it counts: then that is left out.
		version, err = "unknown: "+refused.Error(), nil
		r.blind = true
	}
	e := Environment{
		At: time.Now().UTC().Truncate(time.Second), Commit: commit(ctx), Go: runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Kernel: kernel(ctx), CPU: processor(), CPUs: runtime.NumCPU(),
		Load: load(), Redis: version, Settings: r.observer.settings(ctx), About: r.About,
		Rounds: r.Rounds, Slice: r.Slice.String(), Restless: r.Restless,
	}
	for _, c := range r.Contenders {
		if c.Link != "" {
			continue // As without it.
		}
		entry := Entry{Name: c.Name, About: c.About, Fair: c.Fair, Polls: c.Polls}
		if c.Missing != nil {
			entry.Missing = c.Missing.Error()
		}
		e.Contenders = append(e.Contenders, entry)
	}
	return e, err
}

// settings asks for them. A server that does not tell has none.
func (o *observer) settings(ctx context.Context) map[string]string {
	found := map[string]string{}
	get := o.client.B().ConfigGet().Parameter(telling...).Build()
	if answer, err := o.client.Do(ctx, get).AsStrMap(); err == nil {
		for name, value := range answer {
			found[name] = value
		}
	}
	return found
}

// commit names the state of the working directory, or of the program where that is none.
func commit(ctx context.Context) string {
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err == nil {
		text := strings.TrimSpace(string(head))
		changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no").Output()
		if err == nil && len(changed) > 0 {
			text += "+"
		}
		return text
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return ""
}

func kernel(ctx context.Context) string {
	text, err := exec.CommandContext(ctx, "uname", "-sr").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// processor is the model of the first CPU, where the system has it in a file.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// load returns the load average of the last minute, where the system has it in a file.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	return number(first)
}

// Version is the version of a module which this program was built with.
func Version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return "unknown"
}
