package browser

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// restaurant is a server with holders, queues, and names enough for several pages.
func restaurant(t *testing.T, s *redistest.Server) map[string]*headwaiter.Client {
	t.Helper()
	clients := staff(t, s, "checkout", "billing", "importer", "nightly", "mailer")
	for i, name := range []string{"report:daily", "report:weekly", "index:rebuild", "cache:warm", "tenant:7", "tenant:9"} {
		takes(t, clients[[]string{"nightly", "billing", "importer"}[i%3]], name)
	}
	require.NoError(t, kit.Err(countdown.New(clients["nightly"], "deploy:nodes").TrySetCount(t.Context(), 3)))
	for i := range 230 {
		kit.Release(t, takes(t, clients["importer"], fmt.Sprintf("file:%03d", i)))
	}
	return clients
}

func TestAListIsFilteredSortedAndReadByKeyboard(t *testing.T) {
	s := redistest.Start(t)
	clients := restaurant(t, s)
	takes(t, clients["checkout"], "orders:42")
	for i, name := range []string{"billing", "mailer", "nightly"} {
		queues(t, clients[name], "orders:42", i)
	}
	disguise(t, s, clients)
	_, address := console(t, s)
	b := open(t)
	b.look("light")
	b.visit(address + "/")
	b.shows("h1", "Names")
	b.shows("#names", "238 names")
	b.shows("#names", "Page 1 of 3")
	b.click("thead a", "Waiting")
	b.holds(`document.querySelector("a[data-row]").innerText == "orders:42"`)
	b.holds(`document.querySelector("[aria-sort=descending]").innerText.startsWith("Waiting")`)
	disguise(t, s, clients)
	b.visit(address + "/?sort=-held")
	b.shows("tbody", "checkout@web-")
	b.holds(`document.querySelector("[aria-sort=descending]").innerText.startsWith("Held")`)
	b.holds(`!document.querySelector("tbody tr").innerText.startsWith("file:")`)
	b.picture("console-names.png", 720)

	// By keys alone.
	b.strike("/")
	b.holds(`document.activeElement.id == "filter"`)
	b.press("ORDERS" + kb.Enter)
	b.shows("#names", "1 of 238 names")
	disguise(t, s, clients) // Again: they say every 20 s who they are.
	b.shows("tbody tr", "checkout@web-")
	b.strike("j")
	b.holds(`document.activeElement.innerText == "orders:42"`)

	// What changes comes by itself, and the focus stays.
	queues(t, clients["importer"], "orders:42", 3)
	b.shows("tbody tr .busy", "4")
	b.holds(`document.activeElement.innerText == "orders:42"`)
	b.press(kb.Enter)
	b.shows("h1", "orders:42")
	b.calm(address)
}

func TestANameIsFollowedThroughAKill(t *testing.T) {
	s := redistest.Start(t)
	clients := staff(t, s, "checkout", "billing", "mailer")
	killed := shift(t, s, "orders:42")
	m := fairlock.New(clients["checkout"], "orders:42")
	kit.Eventually(t, "the shell's hold", func() bool { i, err := m.Inspect(t.Context()); return err == nil && i.Held })
	next := queues(t, clients["checkout"], "orders:42", 0)
	queues(t, clients["billing"], "orders:42", 1)
	_, address := console(t, s)
	b := open(t)
	b.visit(address + "/name?name=orders:42")
	b.shows("#holders", "sleep")
	b.shows("#holders", strconv.Itoa(killed.Process.Pid))
	b.holds(`document.querySelector("#holders progress").value > 0`)
	b.holds(`document.querySelectorAll("#queue tbody tr").length == 2`)
	b.shows("#queue tbody tr", "checkout@")
	require.True(t, value[bool](b, `window.same = true`))

	killed.kill()
	b.shows("#holders", strconv.FormatUint(next.Value(t).Token(), 10))
	b.shows("#holders", "checkout")
	b.holds(`document.querySelectorAll("#queue tbody tr").length == 1`)
	b.shows("#timeline", "checkout@")
	b.holds(`document.querySelectorAll("#timeline svg").length == 2`)
	b.holds(`document.querySelector("#timeline rect.now")`)
	b.holds(`document.querySelector("#timeline rect.lapsed")`)
	b.shows("#timeline", "lease ran out")
	b.holds(`window.same`) // Without loading the page again.
	b.calm(address)
}

// Who looks may be in another time zone than the console.
func TestTimesAreThoseOfTheBrowsersClock(t *testing.T) {
	s := redistest.Start(t)
	clients := staff(t, s, "checkout", "billing")
	takes(t, clients["checkout"], "orders:42")
	_, address := console(t, s)
	b := open(t)
	b.zone("Asia/Kathmandu")
	b.visit(address + "/name?name=orders:42")
	told := func(part string) {
		t.Helper()
		at, clock, _ := strings.Cut(value[string](b, `(([t]) => t.dateTime + " " + t.innerText)(document.querySelectorAll("`+part+` time"))`), " ")
		since := kit.Got(time.Parse(time.RFC3339, at))(t)
		require.Equal(t, since.In(time.FixedZone("Nepal", (5*60+45)*60)).Format(time.TimeOnly), clock)
	}
	told("#holders")
	queues(t, clients["billing"], "orders:42", 0)
	b.holds(`document.querySelector("#queue time")`) // It comes by itself.
	told("#queue")
	b.calm(address)
}

func TestHandOffsAreCountedAndDrawn(t *testing.T) {
	s := redistest.Start(t)
	clients := staff(t, s, "checkout", "billing", "mailer", "nightly")
	var all []*headwaiter.Client
	for _, name := range []string{"billing", "mailer", "checkout", "nightly"} {
		all = append(all, clients[name])
	}
	turns(t, all, "orders:42", 700*time.Millisecond)
	_, address := console(t, s)
	b := open(t)
	b.look("dark")
	b.visit(address + "/name?kind=lock&name=orders:42")
	b.holds(`document.querySelectorAll("#timeline svg").length == 4`)
	b.holds(`document.querySelectorAll("#timeline rect.past").length > 20`)
	b.holds(`parseFloat(document.querySelectorAll("#state dd")[1].innerText) > 0.5`)
	disguise(t, s, clients)
	b.holds(`[...document.querySelectorAll("#queue tbody tr")].every((r) => r.innerText.includes("@web-"))`)
	b.holds(`/, for [1-4]\d\dms/.test(document.querySelector("#holders tbody td:nth-child(6)").innerText)`) // The picture is of one moment.
	background := `getComputedStyle(document.body).backgroundColor`
	dark := value[string](b, background)
	b.picture("console-name.png", 960)
	b.look("light")
	require.NotEqual(t, value[string](b, background), dark)
	b.calm(address)
}

func TestAHoldIsReleasedByForce(t *testing.T) {
	s := redistest.Start(t)
	clients := staff(t, s, "checkout", "billing")
	held := takes(t, clients["checkout"], "orders:42")
	next := queues(t, clients["billing"], "orders:42", 0)
	token := strconv.FormatUint(held.Token(), 10)
	_, address := console(t, s, "--allow-release")
	b := open(t)
	b.look("light")
	b.visit(address + "/name?name=orders:42")
	b.shows("header", "may release by force")
	disguise(t, s, clients)
	b.click("#holders a.danger", "")
	b.shows("h1", "Release by force?")
	b.shows(".hold", "checkout on host web-")
	b.shows(".hold", token)
	b.shows(".hold", clients["checkout"].ID())
	b.picture("console-release.png", 480)
	require.NoError(t, held.Context().Err())

	b.click("a", "Leave it")
	b.shows("#holders", token)
	require.NoError(t, held.Context().Err())

	b.click("#holders a.danger", "")
	b.run(chromedp.WaitReady(chromedp.CSS("form button.danger")), chromedp.Focus(chromedp.CSS("form button.danger")))
	b.press(kb.Enter)
	b.shows("h1", "Released")
	b.shows("main", "Now: billing@")
	require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
	require.NoError(t, next.Value(t).Context().Err())
	b.calm(address)
}

func TestCirclesAndTheDoctorAreShown(t *testing.T) {
	s := redistest.Start(t)
	clients := staff(t, s, "checkout", "billing")
	takes(t, clients["checkout"], "orders")
	takes(t, clients["billing"], "stock")
	_, address := console(t, s)
	b := open(t)
	b.visit(address + "/circles")
	b.shows("main", "No client waits in a circle.")
	queues(t, clients["checkout"], "stock", 0)
	queues(t, clients["billing"], "orders", 0)
	b.holds(`(() => { if (document.querySelector(".card")) return true; document.querySelector("main p a")?.click(); })()`)
	b.shows(".card", "2 clients")
	b.shows(".card", "holds lock orders")
	b.click(`nav a[href="/doctor"]`, "")
	b.shows("main", "appendonly")
	b.shows("pre", "round trip")
	b.calm(address)
}

// What a lock, a program or a host is called is text, and runs nothing.
func TestHostileNamesAreText(t *testing.T) {
	const hostile = `<img src=/x onerror=alert(1)></title><script>alert(2)</script>"'>&amp;`
	s := redistest.Start(t)
	key := "headwaiter:lock:{" + hostile + "}"
	s.Do("HSET", key, "owner", "c:1:x:1:3600000000:2000000", "until", "9000000000000000", "token", "7", "since", "7:1000000", "phase", "held")
	s.Do("ZADD", key+":queue", "1000", "d:2:x:1:3600000000:2000000")
	s.Do("HSET", "headwaiter:client:c", "who", hostile+"\x1b[2J\u202e@"+hostile+"#1")
	_, address := console(t, s, "--allow-release")
	b := open(t)
	b.visit(address + "/")
	b.holds(`document.querySelector("a[data-row]").innerText == ` + strconv.Quote(hostile))
	b.click("a[data-row]", "")
	b.shows("h1", hostile)
	b.shows("#holders", hostile+`\x1b[2J\u202e`)
	b.shows("#timeline", hostile)
	b.click("#holders a.danger", "")
	b.shows(".hold", hostile)
	b.click("form button.danger", "")
	b.shows("h1", "Released")
	b.holds(`!document.querySelector("img") && document.scripts.length == 1`)
	b.calm(address)
}

// Redis, and the console, may go away: a page says so, and goes on when they are back.
func TestAPageSaysThatWhatItShowsIsOld(t *testing.T) {
	s := redistest.Start(t)
	takes(t, kit.Dial(t, s), "orders")
	p, address := console(t, s)
	b := open(t)
	b.visit(address + "/name?name=orders")
	b.shows("#holders", "test")
	b.holds(`document.getElementById("lost").hidden`)
	s.Kill()
	b.shows("#state .banner", "Redis does not answer: what follows is")
	b.shows("#holders", "test")
	s.Restart()
	b.holds(`!document.querySelector("#state .banner")`)
	b.shows("#holders", "Nobody holds it.")
	p.kill()
	b.shows("#lost", "The console does not answer")
	b.shows("#holders", "Nobody holds it.") // What it has shown stays.
}
