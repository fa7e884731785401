package pgtest

import (
	"net/url"
	"testing"

	"github.com/headwaiter/headwaiter/internal/testenv/faults"
)

// Through returns a proxy and the address that leads through it. It ends with the test.
func Through(t testing.TB, address string) (*faults.Proxy, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	p := faults.NewProxyOf(t, u.Host, faults.Raw)
	u.Host = p.Addr()
	return p, u.String()
}
