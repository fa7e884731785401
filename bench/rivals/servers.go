package rivals

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/internal/etcdtest"
	"github.com/headwaiter/headwaiter/internal/postgres"
	"github.com/headwaiter/headwaiter/internal/zktest"
)

// Servers are the addresses of what contenders lock on, and why some of it is missing.
type Servers struct {
	Redis     string
	Etcd      string            `json:",omitempty"`
	ZooKeeper string            `json:",omitempty"`
	Postgres  string            `json:",omitempty"`
	Missing   map[string]string `json:",omitempty"` // etcd, zookeeper, postgres: the reason
	Versions  map[string]string `json:",omitempty"`

	stops []func()
}

// StartServers starts those of the engines that are wanted. One that cannot be started is missing, with the reason.
func StartServers(ctx context.Context, redis string, wanted []string) *Servers {
	s := &Servers{Redis: redis, Missing: map[string]string{}, Versions: map[string]string{}}
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
	s.Etcd = server.Endpoint()
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
	s.ZooKeeper = server.Address()
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
	s.Postgres = url
	s.Versions["postgres"] = version + ", " + connections + " connections, fsync off"
	return nil
}
