package redistest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// connect makes a client, perhaps with changes to the option that leads to the server.
func connect(t *testing.T, o rueidis.ClientOption, changes ...func(*rueidis.ClientOption)) (rueidis.Client, error) {
	o.PipelineMultiplex = -1
	o.DisableRetry = true
	for _, change := range changes {
		change(&o)
	}
	client, err := rueidis.NewClient(o)
	if err == nil {
		t.Cleanup(client.Close)
	}
	return client, err
}

// mustConnect is connect for a server that lets the client in.
func mustConnect(t *testing.T, o rueidis.ClientOption, changes ...func(*rueidis.ClientOption)) rueidis.Client {
	client, err := connect(t, o, changes...)
	require.NoError(t, err)
	return client
}

func TestAPasswordIsAskedFor(t *testing.T) {
	t.Parallel()
	s := Start(t, WithPassword("secret"))
	_, err := connect(t, s.Option(), func(o *rueidis.ClientOption) { o.Password = "" })
	require.ErrorContains(t, err, "NOAUTH")
	require.NoError(t, run(t, mustConnect(t, s.Option()), "SET", "a", "1").Error())
	require.Equal(t, "1", s.Text("GET", "a"))
	s.ResetStats()
	s.Do("GET", "a")
	require.Empty(t, s.CommandStats(), "logging in is one of the commands of the test itself")
	s.Restart()
	require.Nil(t, s.Do("GET", "a"))
}

func TestAUserHasItsRightsAndTheTestHasAll(t *testing.T) {
	t.Parallel()
	s := Start(t, WithUser("bob", "secret", "~mine:*", "+get", "+set", "+hello"))
	client := mustConnect(t, s.Option())
	require.NoError(t, run(t, client, "SET", "mine:a", "1").Error())
	require.ErrorContains(t, run(t, client, "SET", "yours:a", "1").Error(), "NOPERM")
	require.ErrorContains(t, run(t, client, "DEL", "mine:a").Error(), "NOPERM")
	s.Do("SET", "yours:a", "1")
	require.ElementsMatch(t, []string{"mine:a", "yours:a"}, s.Keys())
	_, err := connect(t, s.Option(), func(o *rueidis.ClientOption) { o.Username, o.Password = "", "" })
	require.ErrorContains(t, err, "NOAUTH", "nobody is let in as the default user by mistake")
}

func TestAServerWithTLSSpeaksNothingElse(t *testing.T) {
	t.Parallel()
	s := Start(t, WithTLS(NewCertificates(t)))
	require.NoError(t, run(t, mustConnect(t, s.Option()), "SET", "a", "1").Error())
	require.Equal(t, "1", s.Text("GET", "a"))
	require.Empty(t, s.Option().TLSConfig.Certificates, "this one asks for none")

	_, err := connect(t, s.Option(), func(o *rueidis.ClientOption) { o.TLSConfig = nil })
	require.Error(t, err)
	_, err = connect(t, s.Option(), func(o *rueidis.ClientOption) { o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12} })
	require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
	s.Restart()
	require.Equal(t, "PONG", s.Do("PING"))
}

func TestAServerCanAskClientsForACertificate(t *testing.T) {
	t.Parallel()
	s := Start(t, WithTLS(NewCertificates(t)), WithClientCertificates())
	require.NoError(t, run(t, mustConnect(t, s.Option()), "PING").Error())
	_, err := connect(t, s.Option(), func(o *rueidis.ClientOption) { o.TLSConfig.Certificates = nil })
	require.Error(t, err)
}

func TestASocketIsTheOnlyWayToAServerThatListensOnOne(t *testing.T) {
	// As long as on macOS.
	folder, err := os.MkdirTemp("", strings.Repeat("x", 40))
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	t.Setenv("TMPDIR", folder)
	s := Start(t, WithUnixSocket())
	require.NoError(t, run(t, mustConnect(t, s.Option()), "SET", "a", "1").Error())
	require.Equal(t, "1", s.Text("GET", "a"))
	require.Equal(t, "0", s.List("CONFIG", "GET", "port")[1])
	s.Restart()
	require.Empty(t, s.Keys())
}

func TestCommandsThatWereTakenAwayAreUnknownToClients(t *testing.T) {
	t.Parallel()
	s := Start(t, WithoutCommands("config", "CLIENT"))
	client := mustConnect(t, s.Option())
	for _, command := range [][]string{{"CONFIG", "GET", "port"}, {"CLIENT", "ID"}} {
		require.ErrorContains(t, run(t, client, command...).Error(), "unknown command")
		_, err := s.Try(command...)
		require.NoError(t, err)
	}
	s.ResetStats()
	s.Do("CONFIG", "GET", "port")
	require.NoError(t, run(t, client, "PING").Error())
	require.NoError(t, run(t, client, "ECHO", "a").Error())
	require.Equal(t, map[string]int64{"echo": 1}, s.CommandStats())
}

func TestAServerWithoutRESP3IsUsable(t *testing.T) {
	t.Parallel()
	s := Start(t, WithoutRESP3())
	client := mustConnect(t, s.Option())
	require.ErrorContains(t, run(t, client, "HELLO", "2").Error(), "unknown command")
	require.False(t, speaksRESP3(t, client))
	require.True(t, speaksRESP3(t, mustConnect(t, Start(t).Option())))
}

// speaksRESP3 tells by a reply that is a map there, and a list in RESP2.
func speaksRESP3(t *testing.T, client rueidis.Client) bool {
	require.NoError(t, run(t, client, "HSET", "{h}", "field", "1").Error())
	reply, err := run(t, client, "HGETALL", "{h}").ToMessage()
	require.NoError(t, err)
	return reply.IsMap()
}

func TestOnlyAServerThatCanAnswerRuns(t *testing.T) {
	t.Parallel()
	s := Start(t)
	require.True(t, s.Running())
	s.Stop()
	require.False(t, s.Running())
	s.Cont()
	require.True(t, s.Running())
	_, err := s.Try("SHUTDOWN", "NOSAVE")
	require.Error(t, err)
	require.Eventually(t, func() bool { return !s.Running() }, settleLimit, settleLook, "it ended by itself")
	s.Restart()
	require.True(t, s.Running())
	s.Stop()
	s.Kill()
	require.False(t, s.Running())
	s.Restart()
	require.True(t, s.Running(), "a new process is not stopped")
}

func TestSeveralServersFailTogether(t *testing.T) {
	t.Parallel()
	good, bad := newServer(t), newServer(t, WithArgs("--no-such-argument", "1"))
	err := all([]*Server{good, bad}, (*Server).start)
	require.ErrorContains(t, err, "no-such-argument")
	require.True(t, good.Running())
	require.False(t, bad.Running())
}

func TestArgumentsInAFileAreThoseOfTheCommandLine(t *testing.T) {
	t.Parallel()
	odd := `a "quoted" \ one`
	require.Equal(t, "\nport \"1\"\nrequirepass \"a \\\"quoted\\\" \\\\ one\"\n", lines([]string{"--port", "1", "--requirepass", odd}))
	s := Start(t, func(s *Server) { s.file = true }, WithPassword(odd), WithUser("bob", "x", "~*", "+get"))
	require.Equal(t, odd, s.List("CONFIG", "GET", "requirepass")[1])
	s.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	s.Do("CONFIG", "REWRITE")
	s.Restart()
	require.Equal(t, "allkeys-lru", s.List("CONFIG", "GET", "maxmemory-policy")[1], "what was rewritten stays")
	require.Contains(t, s.List("ACL", "USERS"), "bob")
}

// subscribe returns a channel with what the client hears, and returns when it listens.
func subscribe(t *testing.T, client rueidis.Client, command rueidis.Completed) <-chan string {
	ctx, cancel := context.WithCancel(t.Context())
	confirmed, done, heard := make(chan struct{}, 1), make(chan struct{}), make(chan string, 16)
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { confirmed <- struct{}{} })
	go func() {
		defer close(done)
		_ = client.Receive(ctx, command, func(m rueidis.PubSubMessage) { heard <- m.Message })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	<-confirmed
	return heard
}
