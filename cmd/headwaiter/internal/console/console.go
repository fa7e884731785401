// Package console shows the locks of a Redis in a browser: which names there are, who holds and waits, what is handed on,
// who waits for whom, and what the doctor says. It answers on loopback alone, and releases by force only where its
// Options allow it.
package console

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/tty"
)

// Options are what a console shows, and what it may do.
type Options struct {
	Client  *headwaiter.Client
	Redis   string    // the address of the server, as it may be shown
	Release bool      // holds may be released by force
	Log     io.Writer // gets a line for each release by force, and for each failure of the console itself
	// Report says a diagnosis in the words of the command doctor: its facts by lines, and its result.
	Report func(r *doctor.Report, err error) (facts []tty.Row, result string)
}

// A Console answers browsers. Serve runs it.
type Console struct {
	Options
	secret  []byte // of this process: what its forms are signed with
	ctx     context.Context
	end     context.CancelFunc
	work    sync.WaitGroup
	watches *hub
	names   *shared[names]
	most    int // how many names are kept
	circles *shared[inspect.Graph]
	health  *shared[health]
}

const (
	// lookLimit bounds what one look at the server may take, a walk over many names too.
	lookLimit = time.Minute
	// grace is how long requests may go on after the end: a release by force should still say what became of it.
	grace = 3 * time.Second
)

// New makes a console. Serve must be called, and ends it.
func New(o Options) *Console {
	c := &Console{Options: o, secret: make([]byte, 32)}
	_, _ = rand.Read(c.secret) // It never fails.
	c.ctx, c.end = context.WithCancel(context.Background())
	c.watches = &hub{console: c, watched: map[watchKey]*watch{}}
	c.most = mostNames
	c.names = newShared(c, 3*time.Second, c.scan)
	c.circles = newShared(c, 5*time.Second, c.search)
	c.health = newShared(c, 10*time.Second, c.diagnose)
	return c
}

// Serve answers at a listener until ctx ends. It closes the listener, and returns when nothing of the console runs any
// more.
func (c *Console) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           c.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      lookLimit + 10*time.Second, // A stream sets its own.
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(c.Log, "headwaiter: ", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	c.end() // Ends the streams.
	stopping, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if server.Shutdown(stopping) != nil {
		server.Close()
	}
	c.work.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

//go:embed static
var static embed.FS

// Handler is what answers requests.
func (c *Console) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.list)
	mux.HandleFunc("GET /name", c.name)
	mux.HandleFunc("GET /name/events", c.events)
	mux.HandleFunc("GET /circles", c.circle)
	mux.HandleFunc("GET /doctor", c.doctor)
	mux.HandleFunc("GET /release", c.confirm)
	mux.HandleFunc("POST /release", c.release)
	mux.Handle("GET /static/{file}", http.FileServerFS(static))
	return guard(mux)
}

// limited is a context for one look on behalf of a request.
func limited(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), lookLimit)
}

// told is a text of others as a page shows it: without what cannot be seen, or turns its direction. That it is no markup
// is the templates' care.
type told string

func tell(text string) told { return told(words.Shown(text)) }
