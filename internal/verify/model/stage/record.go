package stage

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/verify/vectors"
	"github.com/headwaiter/headwaiter/lua"
)

var writeVectors = flag.Bool("vectors", false, "in place of the tests on embedded servers write the golden vectors of the scripts")

const (
	recorded  = 400 // histories
	mostState = 30  // members of all keys before a run that is kept
	mostRuns  = 20  // of one script and variant
)

// record plays histories and writes the golden vectors of their scripts: for everything that runs show, the shortest.
func (p Play[S]) record(t *testing.T) {
	m := Embed(t, p.Scripts...)
	m.recorder = &recorder{names: p.Vectors, of: map[string]map[string]run{}}
	s := p.ready(t, m)
	if p.Usual != nil {
		require.NoError(t, p.Usual(s))
	}
	for seed := range uint64(recorded) {
		p.check(t, fmt.Sprintf("seed %d", seed), s, seed, p.Random(seed), map[string]int{})
	}
	for file, best := range m.recorder.of {
		var text []byte
		all := fewest(best)
		for _, r := range all[:min(len(all), mostRuns)] {
			text = append(text, r.text...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(vectors.Folder(), file), text, 0o600))
	}
}

// recorder keeps runs of scripts.
type recorder struct {
	names []string
	of    map[string]map[string]run // by file: for each trait the shortest run that has it
	asked []string                  // channels whose subscribers were counted in the present run
}

// A run is one as it is written, and what it shows.
type run struct {
	text   string
	traits []string
}

// fewest are runs that have all traits, the shortest first.
func fewest(best map[string]run) (all []run) {
	candidates := slices.SortedFunc(maps.Values(best), func(a, b run) int {
		return cmp.Or(cmp.Compare(len(a.text), len(b.text)), strings.Compare(a.text, b.text))
	})
	shown := map[string]bool{}
	for _, r := range candidates {
		fresh := false
		for _, trait := range r.traits {
			fresh = fresh || !shown[trait] && best[trait].text == r.text
		}
		if !fresh {
			continue
		}
		all = append(all, r)
		for _, trait := range r.traits {
			shown[trait] = true
		}
	}
	return all
}

// run runs a script, which may be recorded.
func (m *Embedded) run(keys []string, s *lua.Script, args []string) rueidis.RedisResult {
	begins := func(name string) bool { return strings.HasPrefix(s.Name, name) }
	if m.recorder == nil || m.muted || m.blinded || !slices.ContainsFunc(m.recorder.names, begins) {
		return call(m.client, keys, s, args)
	}
	if strings.HasPrefix(s.Variant, "body") {
		i := slices.IndexFunc(lua.Scripts(), func(whole *lua.Script) bool { return whole.Plain() == s })
		request := fmt.Sprintf("0 1 %d 60000", m.time+Minute)
		m.besides(append(slices.Clone(keys), keys[0]+":requests:me"), lua.Scripts()[i], append(slices.Clone(args), request))
		return call(m.client, keys, s, args)
	}
	if s == lua.Fairlock.Check {
		m.besides(keys[:3], lua.Fairlock.Inspect, []string{"100"})
	}
	if s.Mortal() != nil {
		m.mortal(keys, s, args)
	}
	return m.record(keys, s, args)
}

// mortal keeps what the script does for a client with an identity: one that was buried, and one that was not.
func (m *Embedded) mortal(keys []string, s *lua.Script, args []string) {
	var graves []string
	for _, key := range keys {
		if strings.HasSuffix(key, "}") {
			graves = append(graves, lua.GraveKey(key, "me"))
		}
	}
	keys, args = append(slices.Clone(keys), graves...), append(slices.Clone(args), strconv.Itoa(len(graves)))
	m.besides(keys, s.Mortal(), args)
	m.redis.HSet(graves[0], "dead", "1")
	m.besides(keys, s.Mortal(), args)
	m.redis.Del(graves[0])
}

// besides keeps the run of another script than the history has, and undoes it.
func (m *Embedded) besides(keys []string, s *lua.Script, args []string) {
	undo, told := m.keep(keys), len(m.published)
	m.record(keys, s, args)
	m.published = m.published[:told]
	undo()
}

// keep returns what brings keys back as they are now.
func (m *Embedded) keep(keys []string) (undo func()) {
	had := m.contents(keys)
	left := map[string]time.Duration{}
	for key := range had {
		left[key] = m.redis.TTL(key)
	}
	return func() {
		for _, key := range keys {
			m.redis.Del(key)
		}
		for key, c := range had {
			for field, value := range c.Hash {
				m.redis.HSet(key, field, value)
			}
			for member, score := range c.ZSet {
				n, _ := strconv.ParseFloat(score, 64)
				_, _ = m.redis.ZAdd(key, n, member)
			}
			for _, e := range c.List {
				_, _ = m.redis.Push(key, e)
			}
			if left[key] > 0 {
				m.redis.SetTTL(key, left[key])
			}
		}
	}
}

// record runs a script, and keeps the run if it shows something new.
func (m *Embedded) record(keys []string, s *lua.Script, args []string) rueidis.RedisResult {
	before := m.contents(keys)
	m.recorder.asked = nil
	told := len(m.published)
	result := m.client.Do(context.Background(), m.client.B().Eval().Script(s.Source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	reply, err := result.ToAny()
	v := vectors.Vector{Script: s.Name, Variant: s.Variant, Now: m.time, Keys: keys, Args: args, Before: before, Reply: plain(reply)}
	if refusal, is := rueidis.IsRedisErr(err); is && !refusal.IsNil() {
		v.Error = refusal.Error()
	}
	after := m.contents(keys)
	for _, key := range keys {
		if !reflect.DeepEqual(before[key], after[key]) {
			if v.After == nil {
				v.After = map[string]*vectors.Content{}
			}
			v.After[key] = after[key]
		}
	}
	m.mu.Lock()
	for i := told; i+1 < len(m.published); i += 2 {
		v.Messages = append(v.Messages, [2]string{m.published[i], m.published[i+1]})
	}
	slices.Sort(m.recorder.asked)
	for _, channel := range slices.Compact(m.recorder.asked) {
		for range m.redis.PubSubNumSub(channel)[channel] {
			v.Listening = append(v.Listening, channel) // As often as it has subscribers.
		}
	}
	m.mu.Unlock()
	m.recorder.take(v)
	return result
}

// plain is a reply as JSON has it.
func plain(reply any) any {
	if list, ok := reply.([]any); ok {
		all := make([]any, len(list))
		for i, e := range list {
			all[i] = plain(e)
		}
		return all
	}
	return reply
}

// contents are those keys that there are.
func (m *Embedded) contents(keys []string) map[string]*vectors.Content {
	all := map[string]*vectors.Content{}
	for _, key := range keys {
		if !m.redis.Exists(key) {
			continue
		}
		c := &vectors.Content{PTTL: int64(m.redis.TTL(key) / time.Millisecond)}
		switch m.redis.Type(key) {
		case "hash":
			c.Hash = map[string]string{}
			fields, _ := m.redis.HKeys(key)
			for _, f := range fields {
				c.Hash[f] = m.redis.HGet(key, f)
			}
		case "zset":
			c.ZSet = map[string]string{}
			set, _ := m.redis.SortedSet(key)
			for member, score := range set {
				c.ZSet[member] = strconv.FormatFloat(score, 'f', -1, 64)
			}
		case "list":
			c.List, _ = m.redis.List(key)
		}
		all[key] = c
	}
	return all
}

// take keeps a run, for what no shorter one shows of its script.
func (r *recorder) take(v vectors.Vector) {
	size := 0
	for _, c := range v.Before {
		size += c.Members()
		if c.PTTL > 0 && c.PTTL*Millisecond < 2*Stall {
			return // Keys that a slow machine may have lost before the script runs.
		}
	}
	if size > mostState {
		return
	}
	text, err := vectors.Text(v)
	if err != nil {
		panic(err)
	}
	file, x := vectors.File(v.Script, v.Variant), run{text, traits(v)}
	if r.of[file] == nil {
		r.of[file] = map[string]run{}
	}
	for _, trait := range x.traits {
		if had, ok := r.of[file][trait]; !ok || len(text) < len(had.text) {
			r.of[file][trait] = x
		}
	}
}

// traits are what a reader of vectors looks for: forms of requests and replies, what a script writes and what it sends.
func traits(v vectors.Vector) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, a := range v.Args {
		if word := word(a); word != "" {
			add("word %s", word)
		}
	}
	switch reply := v.Reply.(type) {
	case []any:
		add("reply %d %v", min(len(reply), 13), reply[:min(len(reply), 1)])
		for i, e := range reply[:min(len(reply), 12)] {
			if list, ok := e.([]any); ok && len(list) > 0 {
				add("list %d %s", i, word(fmt.Sprint(list[0])))
			} else if i == 7 {
				add("flags %v", e)
			}
		}
	case int64:
		add("number %d", max(min(reply, 13), -1))
	default:
		add("reply %T %.8s", reply, v.Error)
	}
	for _, m := range v.Messages {
		add("message %s", word(m[1]))
	}
	for _, key := range v.Keys {
		after, changed := v.After[key]
		if !changed {
			continue
		}
		_, ending, _ := strings.Cut(key, "}")
		ending = word(strings.TrimLeft(ending, ":"))
		add("%s gone %t", ending, after == nil)
		if after == nil || v.Before[key] == nil {
			continue
		}
		for field := range after.Hash {
			if _, had := v.Before[key].Hash[field]; !had {
				add("%s more %s", ending, word(field))
			}
		}
		for field := range v.Before[key].Hash {
			if _, has := after.Hash[field]; !has {
				add("%s less %s", ending, word(field))
			}
		}
	}
	return all
}

// word is the first word of a text of letters; of another nothing.
func word(text string) string {
	first, _, _ := strings.Cut(strings.TrimLeft(text, "!"), " ")
	if strings.Trim(first, "abcdefghijklmnopqrstuvwxyzGSWFLXEOB") != "" {
		return ""
	}
	return first
}
