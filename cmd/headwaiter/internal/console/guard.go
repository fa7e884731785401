package console

import (
	"net"
	"net/http"
	"strings"
)

// policy lets a page load what the console itself serves, and nothing else: no script or style within a page, no frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"frame-ancestors 'none'; form-action 'self'; base-uri 'none'"

// guard refuses what no page of the console has sent.
func guard(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !local(r.Host):
			// A page of elsewhere can have its own name lead here.
			http.Error(w, "The console answers to localhost and to loopback addresses alone. A reverse proxy must send such a Host.",
				http.StatusMisdirectedRequest)
		case foreign(r):
			http.Error(w, "Pages of other sites may link to the console, and ask it nothing.", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// local reports whether a Host names this machine by loopback.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return strings.EqualFold(host, "localhost") || ip.IsLoopback()
}

// foreign reports whether a page of another site asks for something in the background. Each look costs the server of the
// locks something.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}
