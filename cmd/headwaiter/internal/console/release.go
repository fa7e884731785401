package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/handoffs"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// formLimit bounds what a form may send: a name has 512 bytes.
const formLimit = 8 << 10

// releasePage asks whether a hold is to be released, or says that it was.
type releasePage struct {
	Kind, Name           told
	RawKind, RawName     string // what the form sends back
	Ticket               string // that too
	Holder               holderRow
	Waiting              int
	Signature            string
	Back                 string
	Hears, Warning, Next told
}

// releaseLink leads to the question whether a hold is to be released: the hold with the token and the ticket, as readers
// may share a token.
func releaseLink(kind, name string, h lease.Holder) string {
	return nameLink("/release", kind, name) + "&token=" + strconv.FormatUint(h.Token, 10) + "&ticket=" + url.QueryEscape(h.Ticket)
}

// sign is what a form carries that this process has made, for the hold that it has shown.
func (c *Console) sign(kind, name, token, ticket string) string {
	sum := hmac.New(sha256.New, c.secret)
	fmt.Fprintf(sum, "%q %q %q %q", kind, name, token, ticket)
	return hex.EncodeToString(sum.Sum(nil))
}

// confirm asks, with the holder and the token.
func (c *Console) confirm(w http.ResponseWriter, r *http.Request) {
	if n, h, ok := c.meant(w, r); ok {
		p := c.releasePage(n, h)
		p.Signature = c.sign(n.Kind, n.Name, strconv.FormatUint(h.Token, 10), h.Ticket)
		c.show(w, http.StatusOK, "release", "Release "+n.Name+"?", p)
	}
}

func (c *Console) releasePage(n inspect.Listed, h lease.Holder) releasePage {
	who := words.Roll{}
	who.Read(n.Info)
	return releasePage{
		Kind: tell(n.Kind), Name: tell(n.Name), RawKind: n.Kind, RawName: n.Name, Ticket: h.Ticket, Holder: rowOf(h, who), Waiting: n.Info.Waiting,
		Back: nameLink("/name", n.Kind, n.Name), Hears: tell(words.Hears(n.Kind, h)),
	}
}

// meant is the hold that a request is about. Where there is none, or it must not be released, it answers the request.
func (c *Console) meant(w http.ResponseWriter, r *http.Request) (n inspect.Listed, h lease.Holder, ok bool) {
	if !c.Release {
		c.fail(w, http.StatusForbidden, "This console only reads. It releases by force where it was started with --allow-release.")
		return n, h, false
	}
	token, err := strconv.ParseUint(r.FormValue("token"), 10, 64)
	if err != nil || token == 0 {
		c.fail(w, http.StatusBadRequest, "A hold is named by its token.")
		return n, h, false
	}
	n, ok = c.asked(w, r)
	if !ok {
		return n, h, false
	}
	if lua.ProtocolOf(n.Kind).Broadcast {
		c.fail(w, http.StatusBadRequest, "Nobody holds a "+n.Kind+": there is nothing to release.")
		return n, h, false
	}
	ctx, cancel := limited(r)
	defer cancel()
	if n, err = handoffs.Holding(ctx, c.Client, n); err != nil {
		c.unavailable(w, err)
		return n, h, false
	}
	for _, h := range n.Info.Holders {
		if h.Token == token && (h.Ticket == r.FormValue("ticket") || !lua.ProtocolOf(n.Kind).Several()) {
			return n, h, true
		}
	}
	c.fail(w, http.StatusConflict, "That hold has ended by itself: nothing was released.")
	return n, h, false
}

// release frees the hold that was shown, and no other.
func (c *Console) release(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, formLimit)
	if err := r.ParseForm(); err != nil {
		c.fail(w, http.StatusBadRequest, "That form cannot be read.")
		return
	}
	f := r.PostForm
	signature := c.sign(f.Get("kind"), f.Get("name"), f.Get("token"), f.Get("ticket"))
	if c.Release && !hmac.Equal([]byte(signature), []byte(f.Get("signature"))) {
		c.fail(w, http.StatusForbidden, "That form is not of this console, or of one that has ended: go back, load the page again and confirm anew.")
		return
	}
	n, h, ok := c.meant(w, r)
	if !ok {
		return
	}
	ctx, cancel := limited(r)
	defer cancel()
	p := c.releasePage(n, h)
	who := words.Roll{}
	who.Read(n.Info)
	what := fmt.Sprintf("the %s %s of %s (client %s, token %d) by force", n.Kind, n.Name, who.Of(h), h.Client, h.Token)
	_, err := handoffs.Forcing(ctx, c.Client, n.Kind, n.Name).ForceReleaseHolder(ctx, h)
	if err == nil || errors.Is(err, lease.ErrUnwoken) {
		c.log("released %s", what)
	} else {
		c.log("tried to release %s: %s", what, words.OneLine(err.Error()))
	}
	switch {
	case errors.Is(err, lease.ErrUnwoken):
		p.Warning = tell(words.OneLine(err.Error()))
	case errors.Is(err, lease.ErrNotHeld):
		c.fail(w, http.StatusConflict, "That hold has ended by itself: nothing was released.")
		return
	case err != nil:
		c.unavailable(w, err)
		return
	}
	p.Next = "nobody holds it"
	if all, err := inspect.Find(ctx, c.Client, n.Name); err == nil {
		for _, now := range all {
			if now.Kind == n.Kind && now.Info.Held {
				who := words.Roll{}
				who.Read(now.Info)
				p.Next = tell(words.Summary(now, who))
			}
		}
	}
	c.show(w, http.StatusOK, "released", "Released "+n.Name, p)
}
