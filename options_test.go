package headwaiter_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/striped"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// takes is the type of what the New of a primitive takes as options.
func takes(newOf any) reflect.Type {
	f := reflect.TypeOf(newOf)
	return f.In(f.NumIn() - 1).Elem()
}

var primitives = map[string]reflect.Type{
	"fairlock": takes(fairlock.New), "reentrant": takes(reentrant.New), "rwlock": takes(rwlock.New),
	"semaphore": takes(semaphore.New), "election": takes(election.New), "multilock": takes(multilock.New),
	"striped": takes(striped.New), "redlock": takes(redlock.New), "barrier": takes(barrier.New),
	"countdown": takes(countdown.New),
}

// The compiler asks the same: whether what a function says that it returns is assignable to what another says that it takes.
func TestAnOptionThatAPrimitiveCannotHonourDoesNotCompileThere(t *testing.T) {
	t.Parallel()
	oneServer := []string{"election", "fairlock", "multilock", "reentrant", "rwlock", "semaphore", "striped"}
	locks := append([]string{"redlock"}, oneServer...)
	for name, x := range map[string]struct {
		makes any // a function that returns the option
		by    []string
	}{
		"WithLease":                    {headwaiter.WithLease, append([]string{"barrier"}, locks...)},
		"WithMaxHold":                  {headwaiter.WithMaxHold, locks},
		"WithMaxStall":                 {headwaiter.WithMaxStall, locks},
		"WithMaxWait":                  {headwaiter.WithMaxWait, append([]string{"countdown"}, locks...)},
		"WithPriority":                 {headwaiter.WithPriority, locks},
		"WithReplicas":                 {headwaiter.WithReplicas, oneServer},
		"WithFsync":                    {headwaiter.WithFsync, oneServer},
		"WithSafeRestart":              {headwaiter.WithSafeRestart, oneServer},
		"WithMinHold":                  {headwaiter.WithMinHold, []string{"fairlock", "multilock", "reentrant", "semaphore", "striped"}},
		"WithQueueLimit":               {headwaiter.WithQueueLimit, []string{"fairlock", "reentrant", "rwlock", "semaphore", "striped"}},
		"WithAll of []Option":          {headwaiter.WithAll[headwaiter.Option], locks},
		"WithAll of []QueueOption":     {headwaiter.WithAll[headwaiter.QueueOption], oneServer},
		"WithAll of []fairlock.Option": {headwaiter.WithAll[fairlock.Option], []string{"fairlock", "striped"}},
		"fairlock.WithCohort":          {fairlock.WithCohort, []string{"fairlock", "striped"}},
		"fairlock.WithHistory":         {fairlock.WithHistory, []string{"fairlock", "striped"}},
		"fairlock.WithKeep":            {fairlock.WithKeep, []string{"fairlock", "striped"}},
		"semaphore.WithoutRenewal":     {semaphore.WithoutRenewal, []string{"semaphore"}},
		"multilock.WithBound":          {multilock.WithBound, []string{"multilock"}},
		"redlock.WithTimeout":          {redlock.WithTimeout, []string{"redlock"}},
		"redlock.WithoutSafeRestart":   {redlock.WithoutSafeRestart, []string{"redlock"}},
		"countdown.WithLifetime":       {countdown.WithLifetime, []string{"countdown"}},
		"countdown.WithEarlyWait":      {countdown.WithEarlyWait, []string{"countdown"}},
		"barrier.WithAction":           {barrier.WithAction, []string{"barrier"}},
		"barrier.WithLifetime":         {barrier.WithLifetime, []string{"barrier"}},
	} {
		var found []string
		for primitive, takes := range primitives {
			if reflect.TypeOf(x.makes).Out(0).AssignableTo(takes) {
				found = append(found, primitive)
			}
		}
		require.ElementsMatch(t, x.by, found, name)
	}
}

// What can be an element of a slice that primitives share.
func TestASliceHasOnlyWhatAllWhoTakeItCanHonour(t *testing.T) {
	t.Parallel()
	all, oneServer := reflect.TypeFor[headwaiter.Option](), reflect.TypeFor[headwaiter.QueueOption]()
	for name, x := range map[string]struct {
		makes any
		in    []reflect.Type
	}{
		"WithLease":      {headwaiter.WithLease, []reflect.Type{all, oneServer}},
		"WithMaxWait":    {headwaiter.WithMaxWait, []reflect.Type{all, oneServer}},
		"WithMaxHold":    {headwaiter.WithMaxHold, []reflect.Type{all, oneServer}},
		"WithReplicas":   {headwaiter.WithReplicas, []reflect.Type{oneServer}},
		"WithMinHold":    {headwaiter.WithMinHold, nil},
		"WithQueueLimit": {headwaiter.WithQueueLimit, nil},
		"WithCohort":     {fairlock.WithCohort, nil},
	} {
		var found []reflect.Type
		for _, element := range []reflect.Type{all, oneServer} {
			if reflect.TypeOf(x.makes).Out(0).AssignableTo(element) {
				found = append(found, element)
			}
		}
		require.Equal(t, x.in, found, name)
	}
}

// Users can neither make an option nor call one.
func TestNoMethodOfAnOptionIsExported(t *testing.T) {
	t.Parallel()
	for name, of := range primitives {
		for i := range of.NumMethod() {
			require.False(t, of.Method(i).IsExported(), "%s: %s", name, of.Method(i).Name)
		}
	}
}

func TestOptionsOfASliceAreAppliedInTheirOrder(t *testing.T) {
	t.Parallel()
	first := []headwaiter.Option{headwaiter.WithLease(time.Second), headwaiter.WithMaxWait(time.Minute)}
	all := headwaiter.WithAll(first)
	first[0] = headwaiter.WithPriority(9) // The slice is the caller's again.
	terms := waitqueue.With([]fairlock.Option{headwaiter.WithPriority(1), all, headwaiter.WithLease(time.Hour), fairlock.WithHistory(3)})
	want := waitqueue.DefaultTerms()
	want.Lease, want.MaxWait, want.Priority, want.History = time.Hour, time.Minute, 1, 3
	require.Equal(t, want, terms)
	require.Equal(t, waitqueue.DefaultTerms(), waitqueue.With([]headwaiter.Option{headwaiter.WithAll[headwaiter.Option](nil)}))
}
