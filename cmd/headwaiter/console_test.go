package main

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

var consoleAddress = regexp.MustCompile(`^http://127\.0\.0\.1:\d+`)

// visited starts a console and returns its address.
func visited(t *testing.T, args ...string) (s *shell, address string) {
	t.Helper()
	s = start(t, append([]string{"console", "--listen", "localhost:0"}, args...)...)
	address = consoleAddress.FindString(s.await(s.stdout, "http://"))
	require.NotEmpty(t, address)
	return s, address
}

func got(t *testing.T, address string) (code int, page string) {
	t.Helper()
	answer, err := http.Get(address)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

func TestTheConsoleShowsNoPasswordAndEndsWithASignal(t *testing.T) {
	t.Parallel()
	const password = "s3cr3t/w@rd"
	server := redistest.Start(t, redistest.WithUser("app", password, "+@all", "~*", "&*"))
	holds(t, kit.Dial(t, server), "orders")
	s, address := visited(t, "--allow-release", "--redis", "redis://app:"+url.QueryEscape(password)+"@"+server.Addr())
	read := func() (all string) {
		for _, path := range []string{"/", "/name?kind=lock&name=orders", "/circles", "/doctor", "/name?name=nobody"} {
			code, page := got(t, address+path)
			require.Contains(t, []int{200, 404, 502}, code, page)
			require.Contains(t, page, server.Addr(), "it says which server it shows")
			all += page
		}
		return all
	}
	all := read()
	require.Contains(t, all, "orders")
	require.Contains(t, all, "may release by force")

	stream, err := http.Get(address + "/name/events?kind=lock&name=orders")
	require.NoError(t, err)
	defer stream.Body.Close()
	server.Kill()
	all += read()
	require.Contains(t, all, "That did not work")
	s.signal(syscall.SIGTERM)
	require.Zero(t, s.code(), "an open page does not keep it")
	all += strings.Join(append(s.rest(s.stdout), s.rest(s.stderr)...), "\n")
	for _, secret := range []string{password, url.QueryEscape(password), url.PathEscape(password), "s3cr3t"} {
		require.NotContains(t, all, secret)
	}
}

func TestTheConsoleListensOnLoopbackAlone(t *testing.T) {
	t.Parallel()
	for listen, advice := range map[string]string{
		"0.0.0.0:7420":      "say --listen 127.0.0.1:7420",
		":7420":             "say --listen 127.0.0.1:7420",
		"[::]:80":           "say --listen 127.0.0.1:80",
		"10.0.0.5:7420":     "put a reverse proxy before it",
		"evil.example:7420": "other machines could reach that",
		"7420":              "need an address and a port, as in --listen 127.0.0.1:7420",
		"127.0.0.1":         "need an address and a port",
	} {
		s := start(t, "console", "--listen", listen, "--redis", "redis://127.0.0.1:1")
		complaint := s.rest(s.stderr)
		require.Len(t, complaint, 1, listen)
		assert.Contains(t, complaint[0], advice, listen)
		assert.Equal(t, exitUsage, s.code(), listen)
	}
	server := redistest.Start(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	s := start(t, "console", "--listen", taken.Addr().String(), "--redis", urlOf(server))
	assert.Regexp(t, `cannot listen at 127\.0\.0\.1:\d+: .*in use; say another port by --listen`, strings.Join(s.rest(s.stderr), "\n"))
	assert.Equal(t, exitUnavailable, s.code())
}

func TestTheConsoleSaysWhyItCannotUseRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithUser("app", "right", "+@all", "~*", "&*"))
	s := start(t, "console", "--listen", "127.0.0.1:0", "--redis", "redis://app:wrongword@"+server.Addr())
	complaint := strings.Join(s.rest(s.stderr), "\n")
	require.Contains(t, complaint, "check user name and password")
	require.NotContains(t, complaint, "wrongword")
	require.Equal(t, exitUnavailable, s.code())
	require.Empty(t, s.rest(s.stdout))
}

// What the doctor's page says is what doctor says.
func TestTheConsoleSaysWhatTheDoctorSays(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	server.Do("CONFIG", "SET", "maxmemory", "100mb")
	_, address := visited(t, "--redis", urlOf(server))
	_, page := got(t, address+"/doctor")
	code, text, _ := said(t, server, "doctor")
	require.Equal(t, exitFindings, code)
	_, result, _ := strings.Cut(text, "result: ")
	require.Contains(t, page, `<p class="bad">`+strings.TrimSpace(result)+"</p>")
	require.Contains(t, page, `<span class="badge">danger</span> maxmemory-policy: allkeys-lru`)
	require.Contains(t, page, "  memory       maxmemory 104857600, maxmemory-policy allkeys-lru\n")
	require.Contains(t, page, "read only")
}
