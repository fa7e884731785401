package identity

import (
	"context"
	"strconv"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// buriesAtOnce is how many burials go in one round trip.
const buriesAtOnce = 64

// Buried is what the burial of a client has ended at a name.
type Buried struct {
	Kind, Name string
	Tickets    []string // by which it held, or waited at a barrier
}

// A burial is that of a client at one name.
type burial struct {
	named      string
	kind, name string
	job        conn.Job
}

// A grave is a client that is to be buried, as one key of an identity knows it.
type grave struct {
	servers           *conn.Servers
	prefix, key, dead string
	tell              func(Buried)
}

// bury ends what the client has left, at all names that the key of the identity knows of. It repeats what is not answered until
// ctx ends.
func (g *grave) bury(ctx context.Context) error {
	keys, done := []string{g.key, lua.IdentityNames(g.key, g.dead)}, []string(nil)
	for tries := 0; ; {
		words, err := g.servers.RunFor(ctx, lua.Graves, keys, append([]string{g.dead}, done...)...).AsStrSlice()
		switch {
		case err == nil && len(words) == 0:
			return nil
		case err == nil:
			if done, err = g.buryAt(ctx, words); err == nil {
				tries = 0
				continue
			}
		case conn.Answered(err) && !conn.Mendable(err):
			return conn.Advise(err)
		default:
			done = nil // They may be removed, or not.
		}
		if ended := g.servers.Rest(ctx, calls.Backoff(tries)); ended != nil {
			return conn.GaveUp(ctx, ended, err)
		}
		tries++
	}
}

// buryAt ends what the client has left at some names, given with their notes. It returns the names at which that was done, and
// the last error at the others.
func (g *grave) buryAt(ctx context.Context, words []string) (done []string, last error) {
	nodes := make(map[*conn.Node][]burial)
	for i := 0; i+1 < len(words); i += 2 {
		if b, ok := g.burialOf(words[i], words[i+1]); ok {
			n := g.servers.NodeOf(b.job.Keys[0])
			nodes[n] = append(nodes[n], b)
		} else {
			done = append(done, words[i]) // Of another version: its lease ends it.
		}
	}
	for n, all := range nodes {
		for len(all) > 0 && ctx.Err() == nil {
			part := all[:min(len(all), buriesAtOnce)]
			jobs := make([]conn.Job, len(part))
			for i, b := range part {
				jobs[i] = b.job
			}
			all = all[len(part):]
			for i, res := range g.servers.RunAll(n, jobs) {
				b := part[i]
				r, err := b.job.Script.DecodeBury(res)
				switch {
				case err != nil && (!conn.Answered(err) || conn.Mendable(err)):
					last = err
					continue
				case err == nil && r.Status == wire.Done && g.tell != nil:
					g.tell(Buried{b.kind, b.name, r.States})
				}
				if err == nil && r.From != 0 {
					b.job.Args[lua.BuryFrom] = strconv.FormatInt(r.From, 10)
					all = append(all, b)
					continue
				}
				done = append(done, b.named) // Also where it is refused for good: nobody can use such a name.
			}
		}
	}
	return done, last
}

// burialOf is the burial of the client at a name that an identity knows.
func (g *grave) burialOf(named, note string) (b burial, ok bool) {
	proto, name, ok := lua.NameOf(g.prefix, g.prefix+":"+named)
	if !ok || proto.Bury == nil {
		return b, false
	}
	k := proto.Keys(g.prefix, name)
	keys := append(k.All()[:len(k.All()):len(k.All())], lua.GraveKey(k.Lock, g.dead))
	args := []string{g.dead, strconv.FormatInt(lua.GraveLasts.Milliseconds(), 10), "0", g.servers.Counted()}
	if proto.Several() {
		args = append(args, "0")
	}
	job := conn.Job{Script: proto.Bury, Keys: keys, Args: args}
	if n, _ := strconv.ParseInt(note, 10, 64); proto.Bury.Logged() != nil {
		job = job.Logged(int(n%histories), k.History)
	}
	return burial{named, proto.Kind, name, job}, true
}

// Bury ends what the client has left that has an identity, in place of a client that takes it. An invocation, if not empty,
// limits that to the run of a program that has stated it. found is false if the identity is not known, or another run has it.
func Bury(ctx context.Context, servers *conn.Servers, prefix, identity, invocation string, tell func(Buried)) (found bool, err error) {
	witness := lua.Incarnate{Invocation: invocation}
	for _, key := range keysOf(servers, prefix, identity) {
		var took lua.Raised
		for tries := 0; ; tries++ {
			if took, err = witness.Read(servers.RunFor(ctx, witness.Script(), []string{key}, witness.Args()...)); err == nil {
				break
			}
			if !conn.Transient(err) && ctx.Err() == nil {
				return found, conn.Advise(err)
			}
			if ended := servers.Rest(ctx, calls.Backoff(tries)); ended != nil {
				return found, conn.GaveUp(ctx, ended, err)
			}
		}
		if took.Refused {
			continue
		}
		found = true
		for _, dead := range took.Older {
			g := grave{servers, prefix, key, dead, tell}
			if err := g.bury(ctx); err != nil {
				return found, err
			}
		}
	}
	return found, nil
}
