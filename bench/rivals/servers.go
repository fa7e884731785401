package rivals

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/network"
	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/postgres"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
)

// Servers are the addresses of what contenders lock on, and why some of it is missing.
type Servers struct {
	Redis     string
	Etcd      string            `json:",omitempty"`
	ZooKeeper string            `json:",omitempty"`
	Postgres  string            `json:",omitempty"`
	Missing   map[string]string `json:",omitempty"` // etcd, zookeeper, postgres: the reason
	Versions  map[string]string `json:",omitempty"`

	pids  map[string]int // of the engines
	stops []func()
}

// StartServers starts those of the engines that are wanted. One that cannot be started is missing, with the reason.
func StartServers(ctx context.Context, redis string, wanted []string) *Servers {
	s := &Servers{Redis: redis, Missing: map[string]string{}, Versions: map[string]string{}, pids: map[string]int{}}
	for _, engine := range wanted {
		var err error
		switch engine {
		case "etcd":
			err = s.startEtcd(ctx)
		case "zookeeper":
			err = s.startZooKeeper()
		case "postgres":
			err = s.startPostgres(ctx)
		default:
			err = errors.New("there is no such engine")
		}
		if err != nil {
			s.Missing[engine] = err.Error()
		}
	}
	return s
}

// settle is how long a server that was used has to come to rest.
const settle = 5 * time.Second

// Warm has eight clients use ZooKeeper for so long: the machine that runs it makes its code faster while it runs, for some
// fifteen seconds, in which it answers at a fifth of its pace and takes the CPU from the floors. Without it who is measured
// first would look slow, and so would what is measured with it. Then it has time to end what it has begun. If it cannot be
// used, it is missing.
func (s *Servers) Warm(ctx context.Context, d time.Duration) {
	if s.ZooKeeper == "" {
		return
	}
	driver, end := ZooKeeperLock{s.ZooKeeper}, time.Now().Add(d)
	errs := make(chan error)
	const clients = 8
	for range clients {
		go func() { errs <- cycles(ctx, driver, "warm", end) }()
	}
	var all error
	for range clients {
		all = errors.Join(all, <-errs)
	}
	if all != nil {
		s.Missing["zookeeper"] = all.Error()
		return
	}
	s.Versions["zookeeper"] += fmt.Sprintf(", in use for %v before", d)
	select {
	case <-time.After(min(settle, d)):
	case <-ctx.Done():
	}
}

// cycles locks and releases with one client until the end.
func cycles(ctx context.Context, driver bench.Driver, name string, end time.Time) (err error) {
	client, err := driver.NewClient(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Shutdown(context.WithoutCancel(ctx))) }()
	for lock := client.Mutex(name); time.Now().Before(end); {
		hold, err := lock.Lock(ctx)
		if err == nil {
			err = hold.Release(ctx)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Over are the same servers by a wire that takes the delay each way, until they are stopped.
func (s *Servers) Over(delay time.Duration) (*Servers, error) {
	far := *s
	addrs := []*string{&far.Redis, &far.Etcd, &far.ZooKeeper, &far.Postgres}
	addrs = slices.DeleteFunc(addrs, func(a *string) bool { return *a == "" })
	var servers []string
	for _, a := range addrs {
		servers = append(servers, addressOf(*a))
	}
	wire, err := network.Start(delay, servers...)
	if err != nil {
		return nil, err
	}
	s.stops = append(s.stops, func() { _ = wire.Stop() }) // It was of this run alone.
	for i, a := range addrs {
		*a = strings.Replace(*a, servers[i], wire.Addrs[i], 1)
	}
	return &far, nil
}

// addressOf is where a server listens that is named by its address or a URL.
func addressOf(server string) string {
	if u, err := url.Parse(server); err == nil && u.Host != "" {
		return u.Host
	}
	return server
}

// Stop ends what was started.
func (s *Servers) Stop() {
	for _, stop := range s.stops {
		stop()
	}
}

func (s *Servers) startEtcd(ctx context.Context) error {
	server, err := etcdtest.Start()
	if err != nil {
		return err
	}
	s.stops = append(s.stops, server.Stop)
	version, err := server.Version(ctx)
	if err != nil {
		return err
	}
	s.Etcd, s.pids["etcd"] = server.Endpoint(), server.Pid()
	s.Versions["etcd"] = version + ", one member, fsync as delivered"
	return nil
}

func (s *Servers) startZooKeeper() error {
	// Room for the clients of the benchmark, and the server's own choice of how it uses it.
	server, err := zktest.Start(zktest.WithTick(time.Second), zktest.WithJava("-Xmx512m"))
	if err != nil {
		return err
	}
	s.stops = append(s.stops, server.Stop)
	version, err := server.Version()
	if err != nil {
		return err
	}
	s.ZooKeeper, s.pids["zookeeper"] = server.Address(), server.Pid()
	s.Versions["zookeeper"] = version + ", standalone, fsync as delivered"
	return nil
}

func (s *Servers) startPostgres(ctx context.Context) error {
	p, err := postgres.Start()
	if err != nil {
		return err
	}
	s.stops = append(s.stops, p.Stop)
	url := p.URL("postgres")
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("rivals: postgres: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sqllock.Schema); err != nil {
		return fmt.Errorf("rivals: postgres: %w", err)
	}
	var version, connections string
	row := conn.QueryRow(ctx, "SELECT current_setting('server_version'), current_setting('max_connections')")
	if err := row.Scan(&version, &connections); err != nil {
		return fmt.Errorf("rivals: postgres: %w", err)
	}
	if _, err := strconv.Atoi(connections); err != nil {
		return fmt.Errorf("rivals: postgres: max_connections: %w", err)
	}
	s.Postgres, s.pids["postgres"] = url, p.Pid()
	s.Versions["postgres"] = version + ", " + connections + " connections, fsync off"
	return nil
}
