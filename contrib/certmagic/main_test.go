package certmagic_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// bubble runs a case with a server in a bubble, where certmagic has its clock.
func bubble(t *testing.T, run func(t *testing.T, s *headwaitertest.Server)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { run(t, headwaitertest.Start(t)) })
}

// issueTime is longer than a lease.
const issueTime = 25 * time.Second

// An issuer signs certificates by itself, and counts how many it has been asked for and has issued.
type issuer struct {
	key             *ecdsa.PrivateKey
	authority       *x509.Certificate
	fail            atomic.Int64 // how many of the next calls
	begun           chan struct{}
	calls, inside   atomic.Int64
	most, handedOut atomic.Int64
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	name := pkix.Name{CommonName: "test authority"}
	return &issuer{
		key: key, authority: &x509.Certificate{SerialNumber: big.NewInt(1), Subject: name}, begun: make(chan struct{}, 100),
	}
}

func (i *issuer) IssuerKey() string { return "test" }

func (i *issuer) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	serial := i.calls.Add(1)
	i.most.Store(max(i.most.Load(), i.inside.Add(1)))
	defer i.inside.Add(-1)
	i.begun <- struct{}{}
	select {
	case <-time.After(issueTime):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if i.fail.Add(-1) >= 0 {
		return nil, errors.New("the authority is down")
	}
	certificate := &x509.Certificate{
		SerialNumber: big.NewInt(serial + 1), Subject: pkix.Name{CommonName: request.DNSNames[0]}, DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, certificate, i.authority, request.PublicKey, i.key)
	if err != nil {
		return nil, err
	}
	i.handedOut.Add(1)
	return &certmagic.IssuedCertificate{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}

// configure is one server with certmagic: its own cache, and a storage and an issuer that it may share.
func configure(t *testing.T, storage certmagic.Storage, from *issuer) *certmagic.Config {
	t.Helper()
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	config = certmagic.New(cache, certmagic.Config{
		Storage: storage, Issuers: []certmagic.Issuer{from}, Logger: zap.NewNop(),
		OCSP: certmagic.OCSPConfig{DisableStapling: true},
	})
	return config
}
