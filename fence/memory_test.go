package fence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/internal/testenv/fenced"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// variable is a number in this process, behind a guard if there is one.
type variable struct {
	guard fence.Runner
	n     atomic.Int64
}

func (v *variable) Show(ctx context.Context, token uint64) error {
	if v.guard == nil {
		return nil
	}
	return v.guard.Admit(ctx, token)
}

func (v *variable) Read(context.Context) (int64, error) { return v.n.Load(), nil }

func (v *variable) Write(ctx context.Context, token uint64, n int64) error {
	if v.guard == nil {
		v.n.Store(n)
		return nil
	}
	return v.guard.Do(ctx, token, func(context.Context) error {
		v.n.Store(n)
		return nil
	})
}

func TestMemoryLosesNothingToAPausedHolder(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		losesNothing(t, s, &variable{guard: fence.NewMemory(1).Key("n")}, &variable{})
	})
}

// unshown is a resource whose holders do not show their tokens before they read.
type unshown struct{ fenced.Resource }

func (unshown) Show(context.Context, uint64) error { return nil }

// The late write comes between the read and the write of the next holder, whose token nobody has seen yet.
func TestATokenThatIsNotShownBeforeTheReadLeavesAHole(t *testing.T) {
	t.Parallel()
	for _, shows := range []bool{true, false} {
		var r fenced.Resource = &variable{guard: fence.NewMemory(1).Key("n")}
		if !shows {
			r = unshown{r}
		}
		ctx := t.Context()
		require.NoError(t, r.Show(ctx, 1))
		require.NoError(t, r.Write(ctx, 1, 10))
		require.NoError(t, r.Show(ctx, 2))
		seen := kit.Got(r.Read(ctx))(t)
		late := r.Write(ctx, 1, 20)
		require.NoError(t, r.Write(ctx, 2, seen+1))
		if shows {
			require.ErrorIs(t, late, fence.ErrStale)
		} else {
			require.NoError(t, late)
		}
		require.Equal(t, int64(11), kit.Got(r.Read(ctx))(t), "20 was admitted: %v, and is gone", late == nil)
	}
}

func TestAMemoryGoesByTheHighestTokenInAnyOrder(t *testing.T) {
	t.Parallel()
	fenced.Interleavings(t, 10_000, 4, func(int) fenced.Resource {
		return &variable{guard: fence.NewMemory(1).Key("n")}
	})
	m := fence.NewMemory(2)
	require.NoError(t, m.Key("a").Admit(t.Context(), 5))
	require.NoError(t, m.Key("b").Admit(t.Context(), 1), "keys are not apart")
	require.NoError(t, m.Key("a").Admit(t.Context(), 5), "an equal token is of the same hold")
	err := m.Key("a").Admit(t.Context(), 4)
	stale(t, err, 4, 5)
	require.EqualError(t, err, `fence: admit to "a": stale fencing token: 4, where 5 was seen`)
}

func TestAMemoryRefusesWhatIsNoToken(t *testing.T) {
	t.Parallel()
	refusesWhatIsNoToken(t, fence.NewMemory(1).Key("n"))
	require.Panics(t, func() { fence.NewMemory(0) })
}

// list is a list of tokens without a lock of its own: the race detector sees it if a guard lets two in.
type list struct {
	guard  fence.Runner
	tokens []uint64
}

func (l *list) Read(context.Context) ([]uint64, error) { return l.tokens, nil }

func (l *list) Write(ctx context.Context, token uint64) error {
	return l.guard.Do(ctx, token, func(context.Context) error {
		l.tokens = append(l.tokens, token)
		return nil
	})
}

func TestAMemoryKeepsACrowdInOrder(t *testing.T) {
	t.Parallel()
	fenced.Crowd(t, 8, 2000, &list{guard: fence.NewMemory(1).Key("n")})
}

func TestAMemoryThatForgetsRefusesRatherThanAdmits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := fence.NewMemory(2)
	require.NoError(t, m.Key("a").Admit(ctx, 10))
	require.NoError(t, m.Key("b").Admit(ctx, 20))
	require.NoError(t, m.Key("a").Admit(ctx, 11)) // Now b is the one that was not used for longest.
	require.NoError(t, m.Key("c").Admit(ctx, 5))  // And forgotten.
	stale(t, m.Key("b").Admit(ctx, 19), 19, 20)
	stale(t, m.Key("d").Admit(ctx, 19), 19, 20) // Never seen; it cannot be told from b.
	require.NoError(t, m.Key("a").Admit(ctx, 11), "a refusal made it forget")
	require.NoError(t, m.Key("c").Admit(ctx, 5), "a key that is known goes by its own mark")
	require.NoError(t, m.Key("b").Admit(ctx, 20))
}

func TestAWriteKeepsNewerTokensWaitingAndOlderOnesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := fence.NewMemory(1)
		k := m.Key("n")
		begun, goOn := make(chan struct{}), make(chan struct{})
		wrong := errors.New("wrong")
		write := kit.Run(func() error {
			return k.Do(ctx, 2, func(context.Context) error {
				close(begun)
				<-goOn
				return wrong
			})
		})
		<-begun
		stale(t, k.Admit(ctx, 1), 1, 2)
		// One key more than there is room for: the one that is written is not forgotten.
		require.NoError(t, m.Key("other").Admit(ctx, 1), "keys are not apart")
		newer := kit.Run(func() error { return k.Admit(ctx, 3) })
		synctest.Wait()
		require.False(t, newer.Returned(), "a newer holder reads while an older one writes")
		gone, cancel := context.WithCancel(ctx)
		cancelled := kit.Run(func() error { return k.Admit(gone, 4) })
		synctest.Wait()
		require.False(t, cancelled.Returned())
		kit.Cancel(t, cancel, cancelled)
		close(goOn)
		require.ErrorIs(t, write.Err(t), wrong)
		stale(t, newer.Err(t), 3, 4) // The one that gave up holds since.
		require.NoError(t, k.Admit(ctx, 4))
	})
}

func TestAWriteThatPanicsLetsTheNextIn(t *testing.T) {
	t.Parallel()
	k := fence.NewMemory(1).Key("n")
	require.Panics(t, func() { _ = k.Do(t.Context(), 1, func(context.Context) error { panic("so") }) })
	require.NoError(t, kit.Run(func() error { return k.Admit(t.Context(), 2) }).Err(t))
}

func TestATableOfMarksIsAskedOnce(t *testing.T) {
	t.Parallel()
	db, server := fake(t)
	g := fence.SQL{DB: db, Name: "account:7"}
	require.NoError(t, g.Admit(t.Context(), 5))
	require.Equal(t, []string{
		"INSERT INTO headwaiter_fence AS mark (name, token) VALUES ($1, $2) " +
			"ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE mark.token <= excluded.token[account:7 5]",
	}, server.sent)
	err := g.Admit(t.Context(), 4)
	stale(t, err, 4, 5)
	require.EqualError(t, err, `fence: admit to "account:7": stale fencing token: 4, where 5 was seen`)
	require.Equal(t, "SELECT token FROM headwaiter_fence WHERE name = $1[account:7]", server.sent[2])
	require.NoError(t, fence.SQL{DB: db, Name: "account:8"}.Admit(t.Context(), 1))

	g.Table = `shop."Marks"`
	require.NoError(t, g.Admit(t.Context(), 5))
	require.Contains(t, server.sent[len(server.sent)-1], `INSERT INTO shop."Marks" AS mark`)
}

func TestARowIsWrittenAndCheckedInOneStatement(t *testing.T) {
	t.Parallel()
	db, server := fake(t, "7")
	r := fence.Row{DB: db, Table: "accounts", Key: map[string]any{"id": 7}}
	require.NoError(t, r.Update(t.Context(), 5, "balance = balance - $1, at = $2", 30, "now"))
	require.Equal(t, []string{
		"UPDATE accounts SET balance = balance - $1, at = $2\n, fence = $3 WHERE id = $4 AND (fence IS NULL OR fence <= $3)[30 now 5 7]",
	}, server.sent)
	err := r.Update(t.Context(), 4, "balance = 0")
	stale(t, err, 4, 5)
	require.ErrorContains(t, err, `fence: admit to "accounts": `)
	require.Equal(t, "SELECT fence FROM accounts WHERE id = $1[7]", server.sent[2])
	require.NoError(t, r.Admit(t.Context(), 5))
	require.Equal(t, "UPDATE accounts SET fence = $1 WHERE id = $2 AND (fence IS NULL OR fence <= $1)[5 7]", server.sent[3])

	r = fence.Row{DB: db, Table: `shop."order lines"`, Key: map[string]any{"order_id": 1, "line": "7"}, Column: "token"}
	require.ErrorIs(t, r.Update(t.Context(), 5, "n = $1 -- less", 2), sql.ErrNoRows)
	require.Equal(t, "UPDATE shop.\"order lines\" SET n = $1 -- less\n, token = $2 WHERE line = $3 AND order_id = $4 "+
		"AND (token IS NULL OR token <= $2)[2 5 7 1]", server.sent[4])
	require.Equal(t, `SELECT token FROM shop."order lines" WHERE line = $1 AND order_id = $2[7 1]`, server.sent[5])
}

func TestARowThatIsMissingIsNotAStaleToken(t *testing.T) {
	t.Parallel()
	db, server := fake(t, "7")
	missing := fence.Row{DB: db, Table: "accounts", Key: map[string]any{"id": 8}}
	err := missing.Update(t.Context(), 5, "balance = 0")
	require.ErrorIs(t, err, sql.ErrNoRows)
	require.NotErrorIs(t, err, fence.ErrStale)
	changed := int64(2)
	server.changed = &changed
	many := fence.Row{DB: db, Table: "accounts", Key: map[string]any{"owner": 7}}
	require.ErrorContains(t, many.Update(t.Context(), 5, "balance = 0"), "2 rows were changed")
	changed = 0 // Then somebody puts the row in, before it is asked for its mark.
	late := fence.Row{DB: db, Table: "accounts", Key: map[string]any{"id": 7}}
	require.ErrorIs(t, late.Admit(t.Context(), 5), sql.ErrNoRows)
}

func TestTheErrorsOfTheDatabaseAreItsOwn(t *testing.T) {
	t.Parallel()
	db, server := fake(t, "7")
	server.err = errors.New("40001")
	for _, g := range []fence.Guard{
		fence.SQL{DB: db, Name: "n"},
		fence.Row{DB: db, Table: "accounts", Key: map[string]any{"id": 7}},
	} {
		err := g.Admit(t.Context(), 5)
		require.ErrorIs(t, err, server.err)
		require.NotErrorIs(t, err, fence.ErrStale)
	}
}

func TestSQLRefusesWhatIsNoToken(t *testing.T) {
	t.Parallel()
	db, _ := fake(t, "7")
	refusesWhatIsNoToken(t, fence.SQL{DB: db, Name: "n"})
	refusesWhatIsNoToken(t, fence.Row{DB: db, Table: "accounts", Key: map[string]any{"id": 7}})
}

func TestNamesThatAreNoneDoNotGetIntoAStatement(t *testing.T) {
	t.Parallel()
	db, server := fake(t)
	key := map[string]any{"id": 7}
	bad := []string{
		"a b", "a;b", "a--", `"a`, `a"`, `"a"b`, `""`, "1a", "a.", ".a", "a..b", `a."b" x`, "a(b)", "a'", "$a", " a", `"a"."b`,
	}
	for _, name := range bad {
		for _, g := range []fence.Guard{
			fence.SQL{DB: db, Name: "n", Table: name},
			fence.Row{DB: db, Table: name, Key: key},
			fence.Row{DB: db, Table: "t", Key: key, Column: name},
			fence.Row{DB: db, Table: "t", Key: map[string]any{name: 7}},
		} {
			require.ErrorIs(t, g.Admit(t.Context(), 5), lease.ErrInvalid, name)
		}
	}
	require.ErrorIs(t, fence.SQL{DB: db}.Admit(t.Context(), 5), lease.ErrInvalid)
	require.ErrorIs(t, fence.Row{DB: db, Key: key}.Admit(t.Context(), 5), lease.ErrInvalid)
	require.ErrorContains(t, fence.Row{DB: db, Table: "t"}.Admit(t.Context(), 5), "every row")
	require.Empty(t, server.sent)
	for _, name := range []string{"a", "_a1$", "Straße", "a.b", `"a b;"`, `a."b.c"`, `"a".b`} {
		require.NoError(t, fence.SQL{DB: db, Name: "n", Table: name}.Admit(t.Context(), 5), name)
	}
}

// fakeSQL stands in for Postgres where the test is about the statements and the errors: it understands what the
// guards send, and nothing else. The guards on a real Postgres are tested in contrib/sqllock.
type fakeSQL struct {
	mu      sync.Mutex // guards the fields below
	marks   map[string]*int64
	sent    []string // statements with their arguments
	err     error    // answered to everything
	changed *int64   // answered in place of the rows that a statement changed, if it is set
}

// openFake returns a database with rows that have no mark yet.
func openFake(rows ...string) (*sql.DB, *fakeSQL) {
	f := &fakeSQL{marks: map[string]*int64{}}
	for _, row := range rows {
		f.marks[row] = nil
	}
	return sql.OpenDB(f), f
}

// fake is openFake for a test, which closes it.
func fake(t testing.TB, rows ...string) (*sql.DB, *fakeSQL) {
	db, f := openFake(rows...)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, f
}

func (f *fakeSQL) Connect(context.Context) (driver.Conn, error) { return fakeConn{f}, nil }
func (f *fakeSQL) Driver() driver.Driver                        { return nil }

// run answers how many rows were changed, or what was read.
func (f *fakeSQL) run(query string, args []driver.NamedValue) (changed int64, read *fakeRows, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	f.sent = append(f.sent, fmt.Sprint(query, values))
	if f.err != nil {
		return 0, nil, f.err
	}
	last := fmt.Sprint(values[len(values)-1])
	switch {
	case strings.HasPrefix(query, "INSERT INTO "):
		name, token := fmt.Sprint(values[0]), values[1].(int64)
		changed = f.raise(name, token)
	case strings.HasPrefix(query, "UPDATE "):
		if _, ok := f.marks[last]; ok {
			changed = f.raise(last, values[len(values)-2].(int64))
		}
	case strings.HasPrefix(query, "SELECT "):
		mark, ok := f.marks[last]
		return 0, &fakeRows{mark: mark, none: !ok}, nil
	default:
		return 0, nil, errors.New("a statement that no guard sends")
	}
	if f.changed != nil {
		changed = *f.changed
	}
	return changed, nil, nil
}

func (f *fakeSQL) raise(name string, token int64) (changed int64) {
	if old := f.marks[name]; old != nil && *old > token {
		return 0
	}
	f.marks[name] = &token
	return 1
}

type fakeConn struct{ *fakeSQL }

func (c fakeConn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	changed, _, err := c.run(query, args)
	return driver.RowsAffected(changed), err
}

func (c fakeConn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	_, rows, err := c.run(query, args)
	return rows, err
}

func (c fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not prepared") }
func (c fakeConn) Begin() (driver.Tx, error)           { return fakeTx{}, nil }
func (c fakeConn) Close() error                        { return nil }

type fakeTx struct{}

func (fakeTx) Commit() error   { return nil }
func (fakeTx) Rollback() error { return nil }

// fakeRows is one row with one column, or none.
type fakeRows struct {
	mark *int64
	none bool
}

func (r *fakeRows) Columns() []string { return []string{"mark"} }
func (r *fakeRows) Close() error      { return nil }

func (r *fakeRows) Next(dest []driver.Value) error {
	if r.none {
		return io.EOF
	}
	r.none = true
	if dest[0] = nil; r.mark != nil {
		dest[0] = *r.mark
	}
	return nil
}
