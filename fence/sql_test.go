package fence_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fence"
	"github.com/headwaiter/headwaiter/lease"
)

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
