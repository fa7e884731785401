package headwaiter_test

import (
	"context"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/striped"
)

func takes[O any](option any) bool {
	_, ok := option.(O)
	return ok
}

// takers say of an option whether the New of a primitive takes it: whether the call compiles.
var takers = map[string]func(option any) bool{
	"fairlock": takes[fairlock.Option], "reentrant": takes[reentrant.Option], "rwlock": takes[rwlock.Option],
	"semaphore": takes[semaphore.Option], "election": takes[election.Option], "multilock": takes[multilock.Option],
	"striped": takes[striped.Option], "redlock": takes[redlock.Option], "barrier": takes[barrier.Option],
	"countdown": takes[countdown.Option],
}

func TestAnOptionThatAPrimitiveCannotHonourDoesNotCompileThere(t *testing.T) {
	queues := []string{"election", "fairlock", "multilock", "reentrant", "rwlock", "semaphore", "striped"}
	for name, x := range map[string]struct {
		option any
		by     []string
	}{
		"WithLease":       {headwaiter.WithLease(time.Second), append([]string{"barrier", "redlock"}, queues...)},
		"WithMaxHold":     {headwaiter.WithMaxHold(time.Second), append([]string{"redlock"}, queues...)},
		"WithMaxWait":     {headwaiter.WithMaxWait(time.Second), append([]string{"countdown", "redlock"}, queues...)},
		"WithPriority":    {headwaiter.WithPriority(1), append([]string{"redlock"}, queues...)},
		"WithReplicas":    {headwaiter.WithReplicas(1, time.Second), queues},
		"WithSafeRestart": {headwaiter.WithSafeRestart(), queues},
		"WithQueueLimit":  {headwaiter.WithQueueLimit(1), []string{"fairlock", "reentrant", "rwlock", "semaphore", "striped"}},
		"WithCohort":      {fairlock.WithCohort(8), []string{"fairlock", "striped"}},
		"WithoutRenewal":  {semaphore.WithoutRenewal(), []string{"semaphore"}},
		"WithBound":       {multilock.WithBound(time.Second), []string{"multilock"}},
		"WithTimeout":     {redlock.WithTimeout(time.Second), []string{"redlock"}},
		"WithLifetime":    {countdown.WithLifetime(time.Hour), []string{"countdown"}},
		"WithEarlyWait":   {countdown.WithEarlyWait(), []string{"countdown"}},
		"WithAction":      {barrier.WithAction(func(context.Context) error { return nil }), []string{"barrier"}},
	} {
		var found []string
		for primitive, takes := range takers {
			if takes(x.option) {
				found = append(found, primitive)
			}
		}
		require.ElementsMatch(t, x.by, found, name)
	}
}

// The fields are those of a package that go doc does not show, so the comment of the alias names them.
func TestEveryOptionOfAClientIsInItsComment(t *testing.T) {
	t.Parallel()
	source := kit.Got(os.ReadFile("headwaiter.go"))(t)
	_, comment, _ := strings.Cut(string(source), "// Options is what")
	comment, _, _ = strings.Cut(comment, "Options = ")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[headwaiter.Options]()) {
		require.Regexp(t, `\b`+f.Name+`\b`, comment)
	}
}
