package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/headwaiter/headwaiter/lease"
)

// Header carries the token of a request in decimal. In an answer with status 412 it carries the highest that was
// seen.
const Header = "Fencing-Token"

// Handler is the server's side of fencing over HTTP: it lets a request through only if its token is admitted.
//
// A request without a token is answered 428 Precondition Required (RFC 6585, section 3), one with several or with
// what is none 400 Bad Request (RFC 9110, section 15.5.1), one with a stale token 412 Precondition Failed (section
// 15.5.13). If the guard fails otherwise, the answer is 503 Service Unavailable (section 15.6.4).
//
// It costs what its guard does, and 0.3 µs. What it leaves open is the time between the check and the write of the
// handler, where a newer request may overtake: with a [Runner] such as [MemoryKey] there is none, as the
// handler runs inside; others leave the check to the handler, which finds the token with [TokenFrom] and uses it in
// its own transaction. A token is no credential: authenticate the sender before this.
type Handler struct {
	Next http.Handler
	// Guard returns the guard of what a request writes, or nil if it needs none, as those that read.
	Guard func(*http.Request) Guard
	// Refused, if it is not nil, is told why a request was not let through, for the log.
	Refused func(*http.Request, error)
}

// tokenKey finds the token in the context of a request.
type tokenKey struct{}

// TokenFrom returns the token that a [Handler] has admitted for the request of this context.
func TokenFrom(ctx context.Context) (token uint64, ok bool) {
	token, ok = ctx.Value(tokenKey{}).(uint64)
	return token, ok
}

// errNoToken: the header is missing.
var errNoToken = errors.New("the request has no " + Header)

// ServeHTTP calls Next, or answers why not.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guard := h.Guard(r)
	if guard == nil {
		h.Next.ServeHTTP(w, r)
		return
	}
	if err := h.serve(w, r, guard); err != nil {
		if h.Refused != nil {
			h.Refused(r, err)
		}
		answer(w, err)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, guard Guard) error {
	token, err := tokenOf(r)
	if err != nil {
		return err
	}
	next := func(ctx context.Context) error {
		h.Next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, tokenKey{}, token)))
		return nil
	}
	if runner, ok := guard.(Runner); ok {
		return runner.Do(r.Context(), token, next)
	}
	if err := guard.Admit(r.Context(), token); err != nil {
		return err
	}
	return next(r.Context())
}

// tokenOf reads the token of a request.
func tokenOf(r *http.Request) (uint64, error) {
	values := r.Header.Values(Header)
	switch len(values) {
	case 0:
		return 0, errNoToken
	case 1:
		return parse(values[0])
	}
	return 0, fmt.Errorf("%w: %d fencing tokens in one request", lease.ErrInvalid, len(values))
}

// answer tells the client why its request was not let through. What went wrong with the guard is not its
// business.
func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Cache-Control", "no-store") // RFC 6585 demands it for 428.
	var stale *StaleError
	switch {
	case errors.As(err, &stale):
		w.Header().Set(Header, strconv.FormatUint(stale.Highest, 10))
		http.Error(w, stale.Error()+": lock again", http.StatusPreconditionFailed)
	case errors.Is(err, ErrStale):
		http.Error(w, ErrStale.Error()+": lock again", http.StatusPreconditionFailed)
	case errors.Is(err, errNoToken):
		http.Error(w, "send the fencing token of the lock in "+Header, http.StatusPreconditionRequired)
	case errors.Is(err, lease.ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		http.Error(w, "the fencing token could not be checked", http.StatusServiceUnavailable)
	}
}

// ResponseError returns a [StaleError] if the response is a [Handler]'s to a stale token, and nil otherwise.
// The body is left as it is.
func ResponseError(r *http.Response) error {
	if r.StatusCode != http.StatusPreconditionFailed {
		return nil
	}
	highest, err := parse(r.Header.Get(Header))
	if err != nil {
		return nil // Another precondition failed.
	}
	e := &StaleError{Highest: highest}
	if r.Request != nil {
		e.Token, _ = tokenOf(r.Request)
	}
	return e
}
