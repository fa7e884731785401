package goredis

import (
	"errors"
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/headwaiter/headwaiter"
)

// unlike are the fields that cannot be carried over, where they are set, and why.
var unlike = []refusal{
	{"StreamingCredentialsProvider", "a connection cannot be told of new credentials; clear it, and set Redis.AuthCredentialsFn of " +
		"what you get, which can say when to ask again"},
	{"OnConnect", "it is called with a connection of go-redis; " + leaveOut},
	{"Limiter", "requests of locks would not ask it; " + leaveOut},
	{"NewClient", "it makes the clients of go-redis for the nodes, perhaps with other settings; " + leaveOut},
	{"ClusterSlots", "the nodes themselves are asked for their slots. For a client of NewFailoverClusterClient use goredis.From " +
		"with its FailoverOptions"},
	{"ReplicaOnly", "a replica takes no locks; " + leaveOut + ". It is ReadOnly in UniversalOptions"},
}

const leaveOut = "if locks can do without it, clear it in a copy of the options, and give that to goredis.From"

// refusals names what is set and cannot be carried over.
func refusals(o any) (err error) {
	from := reflect.ValueOf(o).Elem()
	for _, u := range unlike {
		value := from.FieldByName(u.what)
		if value.IsValid() && !value.IsZero() && !isDefault(value) {
			err = errors.Join(err, refusal(u))
		}
	}
	return err
}

// isDefault reports whether it is the function that go-redis itself sets for a cluster.
func isDefault(value reflect.Value) bool {
	return value.Kind() == reflect.Func && value.Pointer() == reflect.ValueOf(redis.NewClient).Pointer()
}

// A refusal says what cannot be carried over, and why.
type refusal struct{ what, why string }

func (r refusal) Error() string {
	return "goredis: " + r.what + " cannot be carried over: " + r.why
}

func (r refusal) Unwrap() error { return headwaiter.ErrInvalid }
