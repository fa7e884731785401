package lua

import (
	"crypto/rand"
	"crypto/sha1" // What Redis has for scripts; of 128 random bits it gives nothing away.
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/wire"
)

// Move lets a hold of the fair lock go from one ticket to another: into transit, or out of it.
var Move = mortal(loadLogged("fairlock/move"))

// Ever is a not-after that never comes.
const Ever = "9007199254740991"

// A Transit is a hold that is under way from one process to another, as the text says that the two pass on.
type Transit struct {
	Lock   string        // the key of the lock
	Client string        // that gives the hold
	Lease  time.Duration // for how long it is in transit, in whole milliseconds
	Secret string
}

// NewTransit returns a transit with a secret of its own.
func NewTransit(lock, client string, lasts time.Duration) Transit {
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // It never fails.
	return Transit{lock, client, lasts.Truncate(time.Millisecond), string(secret[:])}
}

// transitMark begins the text, and says how to read it.
const transitMark = "hold1."

// Ticket is by what the hold is in transit. Who reads it in Redis cannot tell the secret.
func (t Transit) Ticket() string {
	digest := sha1.Sum([]byte(t.Hex()))
	ms := strconv.FormatInt(t.Lease.Milliseconds(), 10)
	return strings.Join([]string{t.Client, hex.EncodeToString(digest[:]), string(wire.Moving), "1", ms, ms}, ":")
}

// Name is the name of the lock, if the key is one of the protocol.
func (t Transit) Name(p *Protocol) (name string, ok bool) {
	_, rest, _ := strings.Cut(t.Lock, ":"+p.Kind+":{")
	return strings.CutSuffix(rest, "}")
}

// Hex is the secret as the script wants it.
func (t Transit) Hex() string { return hex.EncodeToString([]byte(t.Secret)) }

// InTransit reports whether a ticket belongs to a hold in transit.
func InTransit(ticket string) bool { return strings.Contains(ticket, ":"+string(wire.Moving)+":") }

// Text is what whoever gives the hold passes on: a word of letters, digits, and three signs that URLs allow.
func (t Transit) Text() string {
	b := binary.AppendUvarint([]byte(t.Secret), uint64(t.Lease.Milliseconds()))
	b = append(binary.AppendUvarint(b, uint64(len(t.Client))), t.Client...)
	b = append(b, t.Lock...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return transitMark + base64.RawURLEncoding.EncodeToString(b)
}

// ReadTransit reads such a text, and reports whether it is one, and whole.
func ReadTransit(text string) (t Transit, ok bool) {
	coded, ok := strings.CutPrefix(text, transitMark)
	b, err := base64.RawURLEncoding.Strict().DecodeString(coded)
	if !ok || err != nil || len(b) < 20 {
		return t, false
	}
	b, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.ChecksumIEEE(b) != sum {
		return t, false
	}
	t.Secret, b = string(b[:16]), b[16:]
	ms, n := binary.Uvarint(b)
	length, m := binary.Uvarint(b[max(n, 0):])
	if n <= 0 || m <= 0 || length > uint64(len(b)-n-m) || ms == 0 || ms > uint64(mostTransit) {
		return t, false
	}
	b = b[n+m:]
	t.Lease = time.Duration(ms) * time.Millisecond
	t.Client, t.Lock = string(b[:length]), string(b[length:])
	return t, true
}

// mostTransit, in ms, keeps a forged text from making a ticket that scripts cannot count with.
const mostTransit = 365 * 24 * 60 * 60 * 1000
