package fence

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Redis keeps a mark next to a key of the caller's, in the same slot. The server may be another one than the locks'.
//
// Admit costs a round trip. [Redis.Run] puts the check into the script that writes, where it takes the server about
// 2 µs. The mark is a hash of about 100 bytes at headwaiter:fence:{tag}, where tag is what decides on the slot of
// the key. It does not expire unless [WithLifetime] says so, because a mark that is gone is a hole.
//
// What it leaves open: what Redis forgets, by a failover or a restart without its data, it may forget of the mark
// too, though hardly without the data next to it. With a maxmemory-policy of allkeys-* marks are evicted. The user
// needs +eval +evalsha +hget +hset +persist, with a lifetime +pexpire, and ~headwaiter:fence:* in addition to its own keys.
type Redis struct {
	client   rueidis.Client
	key      string
	mark     string
	slot     uint16 // of both
	lifetime string // in ms
	err      error  // why it cannot be used
}

var _ Guard = (*Redis)(nil)

// RedisOption sets how a mark is kept.
type RedisOption func(*redisTerms)

type redisTerms struct {
	prefix   string
	lifetime time.Duration
}

// WithPrefix sets what the key of the mark begins with; the default is headwaiter. All who write to the same
// resource must use the same.
func WithPrefix(prefix string) RedisOption {
	return func(t *redisTerms) { t.prefix = prefix }
}

// WithLifetime lets the mark expire when it was not used for d, a minute at the least. After that any token is
// admitted, however old: d must be longer than a holder can be paused, or a write on its way. The default is
// that a mark stays, also one that was to expire, from its next token on. All who write to the same resource should use
// the same.
func WithLifetime(d time.Duration) RedisOption {
	return func(t *redisTerms) { t.lifetime = d }
}

// NewRedis returns the guard of a key, which need not exist: it gives the mark its name and its slot. Nothing is
// sent; a key or an option that cannot be used is reported by the first call.
func NewRedis(c rueidis.Client, key string, opts ...RedisOption) *Redis {
	t := redisTerms{prefix: "headwaiter"}
	for _, o := range opts {
		o(&t)
	}
	g := &Redis{client: c, key: key, mark: markOf(t.prefix, key), slot: lua.Slot(key)}
	g.lifetime = strconv.FormatInt(t.lifetime.Milliseconds(), 10)
	g.err = t.check(g)
	return g
}

// markOf is the key of the mark: in the slot of the given key, and of no other key. A key with a tag of its own
// is named after it.
func markOf(prefix, key string) string {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, found := strings.Cut(rest, "}"); found && tag != "" {
			return prefix + ":fence:{" + tag + "}:" + key
		}
	}
	return prefix + ":fence:{" + key + "}"
}

func (t redisTerms) check(g *Redis) error {
	const mostPrefix = 128
	switch {
	case g.key == "":
		return fmt.Errorf("%w: the key is empty", lease.ErrInvalid)
	case lua.Slot(g.mark) != g.slot:
		return fmt.Errorf("%w: a mark cannot share the slot of this key: give it a tag in braces", lease.ErrInvalid)
	case t.prefix == "" || len(t.prefix) > mostPrefix || strings.ContainsAny(t.prefix, "{}") || !names.Printable(t.prefix):
		return fmt.Errorf("%w: prefix %.40q: must be printable, without braces, at most %d bytes",
			lease.ErrInvalid, t.prefix, mostPrefix)
	case t.lifetime != 0:
		return waitqueue.CheckLifetime(t.lifetime)
	}
	return nil
}

// Mark returns the key of the mark. Who deletes the resource for good may delete it too, once no old holder can
// be left.
func (g *Redis) Mark() string { return g.mark }

//go:embed admit.lua
var admitSource string

// prologue is the check on one line, so that errors of the caller's part name the caller's lines.
var prologue = func() string {
	var code []string
	for line := range strings.Lines(admitSource) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			code = append(code, line)
		}
	}
	return strings.Join(code, " ") + " "
}()

// admit may be repeated after a lost answer.
var admit = rueidis.NewLuaScriptRetryable(prologue + "return 1")

// A Script is Lua of the caller's that runs only if a token is admitted.
type Script struct{ lua *rueidis.Lua }

// NewScript takes the source as it would be given to EVAL: it finds its keys and arguments in KEYS and ARGV as
// if there were no check, and what it returns is the reply. It may not begin with a line of flags (#!lua).
//
// Make a script once: its digest is computed here.
func NewScript(source string) *Script {
	if strings.HasPrefix(source, "#!") {
		panic("fence: a script that begins with #! cannot follow another: leave that line out")
	}
	return &Script{rueidis.NewLuaScript(prologue + source)}
}

// Admit returns nil and keeps the token, unless a higher one was seen. An error that wraps [lease.ErrOutcomeUnknown]
// says that no answer came.
//
// A write after it in a request of its own can come late all the same: [Redis.Run] does both at once.
func (g *Redis) Admit(ctx context.Context, token uint64) error {
	err := g.exec(ctx, token, admit, nil, nil).Error()
	if _, answered := rueidis.IsRedisErr(err); answered {
		err = refused(g.key, err)
	}
	return err
}

// Run runs a script if the token is admitted. Check and script are one for the server: nobody comes between.
//
// The keys must be in the slot of the guard's key, also where there is no cluster. If the token is stale the error of
// the result is an [ErrStale], and nothing was changed. If the script fails the token stays kept. Run does
// not repeat a script: an error that wraps [lease.ErrOutcomeUnknown] says that no answer came, so that it may have run.
func (g *Redis) Run(ctx context.Context, token uint64, s *Script, keys, args []string) rueidis.RedisResult {
	return g.exec(ctx, token, s.lua, keys, args)
}

func (g *Redis) exec(ctx context.Context, token uint64, script *rueidis.Lua, keys, args []string) rueidis.RedisResult {
	fail := func(err error) rueidis.RedisResult { return rueidis.NewErrorResult(refused(g.key, err)) }
	if g.err != nil {
		return fail(g.err)
	}
	if err := usable(ctx, token); err != nil {
		return fail(err)
	}
	for _, key := range keys {
		if lua.Slot(key) != g.slot {
			err := fmt.Errorf("%w: the key %.40q is in another slot: give both the same tag in braces", lease.ErrInvalid, key)
			return fail(err)
		}
	}
	all := append(append(make([]string, 0, len(keys)+1), keys...), g.mark)
	said := append(append(make([]string, 0, len(args)+2), args...), strconv.FormatUint(token, 10), g.lifetime)
	result := script.Exec(ctx, g.client, all, said)
	if err := result.Error(); err != nil && !rueidis.IsRedisNil(err) {
		if mine := g.verdict(ctx, token, err); mine != nil {
			return fail(mine)
		}
	}
	return result
}

// verdict is what an error means; nothing where it is the script's own.
func (g *Redis) verdict(ctx context.Context, token uint64, err error) error {
	answer, answered := rueidis.IsRedisErr(err)
	if !answered {
		if errors.Is(err, rueidis.ErrClosing) {
			return err
		}
		if ctx.Err() != nil {
			err = ended(ctx)
		}
		return fmt.Errorf("%w: %w", lease.ErrOutcomeUnknown, err)
	}
	code, rest, _ := strings.Cut(answer.Error(), " ")
	switch code {
	case "STALEFENCE":
		highest, err := parse(rest)
		if err != nil {
			return fmt.Errorf("the mark at %q: %w", g.mark, err)
		}
		return &StaleError{Token: token, Highest: highest}
	case "BADFENCE":
		return fmt.Errorf("the mark at %q is no token: %.40q", g.mark, rest)
	}
	return nil
}
