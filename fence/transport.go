package fence

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/lease"
)

// Transport is the client's side of fencing over HTTP: a [http.RoundTripper] that puts the token of a lease into
// the [Header] of a request.
//
// The lease comes from the request's context, as in http.NewRequestWithContext(held.Context(), …); of several it is the
// innermost. Such a request is cut off when the hold ends. A request without a lease passes as it
// is. One whose lease has ended is not sent, and the error wraps the cause, such as [lease.ErrLost]; nor is one
// whose token says nothing ([ErrShared]).
//
// A token is sent to the origin of the first request, and neither to another that a redirect leads to nor back from
// there. It costs a copy of the header, 0.7 µs. What it leaves open is for the guard to close: a request that was
// sent in time may arrive late.
type Transport struct {
	// Base sends the request; nil stands for [http.DefaultTransport].
	Base http.RoundTripper
	// Lease, if it is not nil, is the one to use, whatever the context says.
	Lease *lease.Lease
}

// RoundTrip sends the request with the token.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if strayed(r) {
		// What the caller put in by hand goes along with redirects.
		r = r.Clone(r.Context())
		r.Header.Del(Header)
		return base.RoundTrip(r)
	}
	token, err := t.token(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // A RoundTripper closes it, also on errors.
		}
		return nil, fmt.Errorf("fence: send to %s: %w", r.URL.Redacted(), err)
	}
	if token != 0 {
		r = r.Clone(r.Context())
		r.Header.Set(Header, strconv.FormatUint(token, 10))
	}
	return base.RoundTrip(r)
}

// token returns the token for a request; 0 if there is no lease.
func (t *Transport) token(r *http.Request) (uint64, error) {
	held := t.Lease
	if held == nil {
		found, ok := lease.FromContext(r.Context())
		if !ok {
			return 0, nil
		}
		held = found
	}
	switch {
	case held.Shared():
		return 0, fmt.Errorf("%w: if another lease is meant, set it in the transport", ErrShared)
	case held.Context().Err() != nil:
		return 0, context.Cause(held.Context())
	case held.Token() == 0:
		return 0, fmt.Errorf("%w: the lease has no fencing token", lease.ErrInvalid)
	}
	return held.Token(), nil
}

// strayed reports whether redirects have led a request to another origin than the first one, be it in between.
func strayed(r *http.Request) bool {
	for via := r.Response; via != nil; via = via.Request.Response {
		if via.Request == nil || origin(via.Request.URL) != origin(r.URL) {
			return true
		}
	}
	return false
}

// origin is scheme, host and port, as in RFC 6454.
func origin(u *url.URL) [3]string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return [3]string{u.Scheme, strings.ToLower(u.Hostname()), port}
}
