package chaos

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// A witness knows which server has said a number to a client last, so whose word a token is.
type witness struct {
	mu sync.Mutex // guards by
	by map[uint64]string
}

// digits is how many the numbers that count have at least. A token begins with the time in µs.
const digits = 15

// listens has the witness hear all that comes in by the connections that o leads to.
func (w *witness) listens(o rueidis.ClientOption) rueidis.ClientOption {
	dial := o.DialCtxFn
	if dial == nil {
		dial = func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", address)
		}
	}
	o.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, address, d, c)
		if err != nil {
			return nil, err
		}
		return &heard{Conn: conn, address: conn.RemoteAddr().String(), witness: w}, nil
	}
	return o
}

// A way is what clients take for one server, and leads to one after the other.
type way struct {
	mu    sync.Mutex // guards the rest
	to    string
	conns []net.Conn
}

// lead sets where the way leads from now on, and ends what it led to before.
func (w *way) lead(to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

func (w *way) dial(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	conn, err := d.DialContext(ctx, "tcp", w.to)
	if err == nil {
		w.conns = append(w.conns, conn)
	}
	return conn, err
}

// of is the server that has said the number last, before now.
func (w *witness) of(number uint64) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by[number]
}

func (w *witness) hears(number uint64, address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by[number] = address
}

// heard is a connection with a witness. One goroutine reads it.
type heard struct {
	net.Conn
	address string
	witness *witness
	number  uint64 // that is being read
	digits  int
	before  uint64 // the number that counts and is one space ahead of that, or 0
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	for _, b := range p[:n] {
		if '0' <= b && b <= '9' {
			h.number, h.digits = h.number*10+uint64(b-'0'), h.digits+1
			continue
		}
		h.take(b)
	}
	return n, err
}

// take takes in the number that ends with b, if there is one. A message tells of a grant when it was, and by how much the
// token is above that.
func (h *heard) take(b byte) {
	before := h.before
	h.before = 0
	if h.digits >= digits {
		h.witness.hears(h.number, h.address)
		if b == ' ' {
			h.before = h.number
		}
	} else if h.digits > 0 && before > 0 {
		h.witness.hears(before+h.number, h.address)
	}
	h.number, h.digits = 0, 0
}

// at is a moment of a forged history.
func at(ms int) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(ms) * time.Millisecond)
}

// forged is a hold by a server's word, of those whose call began a little before them.
func forged(by string, from, to int) seen {
	return seen{name: "a", by: by, token: uint64(from), called: at(from - 5), from: at(from), to: at(to), until: at(to + 1000)}
}

// told is a hold whose loss its holder learned of.
func told(s seen) seen {
	s.lost = errors.New("lost")
	return s
}

func TestAFailoverExcusesAnOverlapOfItsTwoMastersAndNothingElse(t *testing.T) {
	t.Parallel()
	one := []failover{{old: "A", new: "B", began: at(1000), agreed: at(2000)}}
	back := append(one, failover{old: "B", new: "A", began: at(3000), agreed: at(4000)})
	over := forged("A", 1000, 1100)
	over.until = at(1090)
	moved := forged("A", 900, 1500) // Renewed by the new master; the old one has let it run out.
	moved.last = "B"
	for what, h := range map[string]struct {
		holds     []seen
		failovers []failover
		wrong     int
	}{
		"one after the other":                         {[]seen{forged("A", 100, 200), forged("A", 200, 300)}, one, 0},
		"both masters, before all agree":              {[]seen{forged("A", 1500, 1600), forged("B", 1550, 1650)}, one, 0},
		"the new one first":                           {[]seen{forged("B", 1500, 1600), forged("A", 1550, 1650)}, one, 0},
		"told within the lease":                       {[]seen{told(forged("A", 1500, 4500)), forged("B", 2500, 2600)}, one, 0},
		"granted by the old one, renewed by the new":  {[]seen{moved, forged("A", 1400, 1450)}, one, 0},
		"back again":                                  {[]seen{forged("B", 3500, 3600), forged("A", 3550, 3650)}, back, 0},
		"one master, without a failover":              {[]seen{forged("A", 100, 200), forged("A", 150, 250)}, nil, 1},
		"one master, in a failover":                   {[]seen{forged("A", 1500, 1600), forged("A", 1550, 1650)}, one, 1},
		"the new master alone":                        {[]seen{forged("B", 1500, 1600), forged("B", 1550, 1650)}, one, 1},
		"one master, and told":                        {[]seen{told(forged("A", 1500, 1600)), forged("A", 1550, 1650)}, one, 1},
		"not the masters of one failover":             {[]seen{forged("A", 1500, 1600), forged("C", 1550, 1650)}, one, 1},
		"before the failover":                         {[]seen{forged("A", 800, 1100), forged("B", 900, 950)}, one, 1},
		"between two failovers":                       {[]seen{forged("B", 2500, 2600), forged("A", 2550, 2650)}, back, 1},
		"the old one asked after all agreed":          {[]seen{forged("B", 2400, 2700), forged("A", 2500, 2600)}, one, 1},
		"not told":                                    {[]seen{forged("A", 1500, 2600), forged("B", 2500, 2700)}, one, 1},
		"told after the rest of the lease":            {[]seen{told(forged("A", 1500, 5500)), forged("B", 2500, 2700)}, one, 1},
		"two of the new one beside one of the old":    {[]seen{forged("A", 1500, 1900), forged("B", 1600, 1800), forged("B", 1700, 1850)}, one, 1},
		"certain after its lease, though it is alone": {[]seen{over}, one, 1},
		"by nobody's word":                            {[]seen{forged("", 100, 200)}, one, 1},
	} {
		require.Len(t, unexcused(h.holds, h.failovers), h.wrong, what)
	}
}

// Failovers that follow each other closely are there all the time, and excuse nothing but themselves.
func TestOverlapsAllAlongAreFoundThoughMastersChangeAllAlong(t *testing.T) {
	t.Parallel()
	var holds []seen
	for i := range 4000 {
		holds = append(holds, forged("A", 10*i, 10*i+15))
	}
	var failovers []failover
	for i := range 40 {
		old, new := "A", "B"
		if i%2 == 1 {
			old, new = new, old
		}
		failovers = append(failovers, failover{old: old, new: new, began: at(1000 * i), agreed: at(1000*i + 4000)})
	}
	require.Len(t, unexcused(holds, failovers), 3999)
}

// After a step back of the server's clock tokens are ahead of it, and messages tell by how much.
func TestAWitnessKnowsATokenThatIsAheadOfTheClock(t *testing.T) {
	w := &witness{by: map[uint64]string{}}
	client, server := net.Pipe()
	defer client.Close()
	text := ":1795666750000001\r\n$60\r\nG c:1:x:1:3000:2000 1795666750009000 903 2000\r\n"
	go func() {
		defer server.Close()
		_, _ = io.WriteString(server, text)
	}()
	require.NoError(t, kit.Err(io.ReadAll(&heard{Conn: client, address: "here", witness: w})))
	require.Equal(t, "here", w.of(1795666750000001))
	require.Equal(t, "here", w.of(1795666750009903))
	require.Empty(t, w.of(1795666750000061))
	require.Empty(t, w.of(1795666750011000))
}
