package inspect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/identity"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// incarnation makes a client with an identity, which others of this process may have had.
func incarnation(t *testing.T, s redistest.Backend, of, run string) *headwaiter.Client {
	c := kit.Dial(t, s, func(o *headwaiter.Options) { o.Identity, o.Invocation = of, run })
	identity.Ours(c.ID(), false)
	return c
}

// Who holds and who waits is told with the identity and its incarnation, and who has lost it with that.
func TestHoldersAndWaitersAreToldWithTheirIncarnations(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name, begun := kit.Name(t), time.Now().Add(-time.Minute)
		looks, first := kit.Dial(t, s), incarnation(t, s, name+"@h", "run 1")
		kit.Lock(t.Context(), fairlock.New(first, name, headwaiter.WithLease(time.Hour)).Lock).Value(t)
		kit.Joins(t, 1, fairlock.New(incarnation(t, s, name+"@i", ""), name).Lock, fairlock.New(looks, name).Inspect)
		kit.Joins(t, 2, fairlock.New(looks, name).Lock, fairlock.New(looks, name).Inspect)
		found := kit.Got(inspect.Find(t.Context(), looks, name))(t)
		require.Len(t, found, 1)
		i := found[0].Info
		require.WithinRange(t, i.Holder.Taken, begun, time.Now().Add(time.Minute))
		i.Holder.Taken, i.Queue[0].Taken = time.Time{}, time.Time{}
		require.Equal(t, lease.Incarnation{Identity: name + "@h", Invocation: "run 1"}, i.Holder.Incarnation)
		require.Equal(t, lease.Incarnation{Identity: name + "@i"}, i.Queue[0].Incarnation)
		require.Zero(t, i.Queue[1].Incarnation)
		require.Equal(t, i.Holders[0].Who, i.Holder.Who)

		s.Do("HSET", "headwaiter:identity:"+name+"@h", "client", "another") // The burial has not come so far.
		i = kit.Got(fairlock.New(looks, name).Inspect(t.Context()))(t)
		require.True(t, i.Holder.Replaced)
		require.Zero(t, i.Holder.Taken)
		require.False(t, i.Queue[0].Replaced)
	})
}

// An identity is told with its newest incarnation, with the one from which it was taken, and with what its client uses.
func TestAnIdentityIsToldWithTheOneBefore(t *testing.T) {
	kit.Each(t, toldWithTheOneBefore)
}

func TestAnIdentityOfAClusterIsToldWithTheOneBefore(t *testing.T) {
	t.Parallel()
	toldWithTheOneBefore(t, redistest.Cluster(t))
}

func toldWithTheOneBefore(t *testing.T, s redistest.Backend) {
	name := kit.Name(t)
	looks, named := kit.Dial(t, s), name+"@h"
	find := func() inspect.Identity {
		id, found, err := inspect.FindIdentity(t.Context(), looks, named)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, named, id.Identity)
		return id
	}
	_, found, err := inspect.FindIdentity(t.Context(), looks, named)
	require.NoError(t, err)
	require.False(t, found)

	first := incarnation(t, s, named, "run 1")
	id := find()
	require.Equal(t, "run 1", id.Invocation)
	require.Equal(t, first.ID(), id.Client)
	require.Zero(t, id.Before)
	taken := id.Taken

	second := incarnation(t, s, named, "run 2")
	kit.Release(t, kit.Lock(t.Context(), fairlock.New(second, name).Lock).Value(t))
	kit.Lock(t.Context(), fairlock.New(second, name).Lock).Value(t)
	id = find()
	require.Equal(t, "run 2", id.Invocation)
	require.Equal(t, second.ID(), id.Client)
	require.True(t, id.Taken.After(taken))
	require.WithinDuration(t, taken, id.Before, time.Minute)
	require.Equal(t, id.Who, id.BeforeWho)
	require.Equal(t, []string{"lock:{" + name + "}"}, id.Names)
	require.Zero(t, id.Older)
	require.Zero(t, id.Twice)

	require.ErrorIs(t, kit.Err(fairlock.New(first, name).Lock(t.Context())), lease.ErrReplaced)
	id = find()
	require.False(t, id.Twice.IsZero(), "the first one lives")
	require.Equal(t, id.Who, id.TwiceWho)

	_, _, err = looks.Bury(t.Context(), named, "run 2")
	require.NoError(t, err)
	id = find()
	require.True(t, id.Replaced)
	require.Empty(t, id.Client)
	require.Zero(t, id.Twice)
	require.Zero(t, id.Before)
	third := incarnation(t, s, named, "run 3")
	id = find()
	require.Equal(t, third.ID(), id.Client)
	require.Zero(t, id.Before, "a witness had said that it was dead")
	require.Empty(t, id.Names)
}
