package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are an authority of the test's own and what it has signed: one certificate for servers on
// 127.0.0.1 and one for clients.
type Certificates struct {
	t      testing.TB
	dir    string
	pool   *x509.CertPool
	mine   tls.Certificate
	serial int64
}

// NewCertificates makes certificates that are good for a day.
func NewCertificates(t testing.TB) *Certificates {
	t.Helper()
	c := &Certificates{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	authority, key := c.issue("authority", &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	c.pool.AddCert(authority)
	c.issue("server", &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		// Servers are each other's clients: as replicas, as nodes of a cluster.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, authority, key)
	c.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, authority, key)
	mine, err := tls.LoadX509KeyPair(c.File("client.crt"), c.File("client.key"))
	c.must(err)
	c.mine = mine
	return c
}

// WithTLS makes a server speak TLS, and nothing else: to clients, and to other servers.
func WithTLS(c *Certificates) Option {
	return func(s *Server) { s.certificates = c }
}

// WithClientCertificates makes a server with TLS refuse clients without a certificate.
func WithClientCertificates() Option {
	return func(s *Server) { s.clientCertificates = true }
}

// args are the arguments of a server with these certificates.
func (c *Certificates) args(fromClients bool) []string {
	ask := "no"
	if fromClients {
		ask = "yes"
	}
	return []string{
		"--tls-cert-file", c.File("server.crt"), "--tls-key-file", c.File("server.key"),
		"--tls-ca-cert-file", c.File("authority.crt"), "--tls-auth-clients", ask,
	}
}

// client is the configuration of a client that trusts the authority, with a certificate of its own or not.
func (c *Certificates) client(certified bool) *tls.Config {
	config := &tls.Config{RootCAs: c.pool, MinVersion: tls.VersionTLS12}
	if certified {
		config.Certificates = []tls.Certificate{c.mine}
	}
	return config
}

// issue writes a certificate and its key into the folder, signed by the parent or, without one, by itself.
func (c *Certificates) issue(name string, what, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	c.must(err)
	if parent == nil {
		parent, signer = what, key
	}
	c.serial++
	what.SerialNumber = big.NewInt(c.serial)
	what.Subject = pkix.Name{CommonName: "redistest " + name}
	what.NotBefore, what.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, what, parent, &key.PublicKey, signer)
	c.must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	c.must(err)
	c.write(name+".crt", "CERTIFICATE", der)
	c.write(name+".key", "PRIVATE KEY", private)
	certificate, err := x509.ParseCertificate(der)
	c.must(err)
	return certificate, key
}

// File is where a certificate or its key lies, in PEM: of the authority, server or client, as in authority.crt and client.key.
func (c *Certificates) File(name string) string { return filepath.Join(c.dir, name) }

func (c *Certificates) write(name, kind string, der []byte) {
	c.must(os.WriteFile(c.File(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func (c *Certificates) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("redistest: certificates: %v", err)
	}
}
