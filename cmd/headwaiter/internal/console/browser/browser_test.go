// Package browser tries the console in a real browser, on a live Redis. It takes the pictures of docs/console.md.
package browser

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

var update = flag.Bool("update", false, "write the pictures of docs/pictures")

// patience is how long a test waits for anything before it fails.
const patience = time.Minute

// program is the command, and chromium the browser: TestMain finds them.
var program, chromium string

func TestMain(m *testing.M) {
	flag.Parse()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && chromium == "" {
			chromium = found
		}
	}
	if chromium == "" {
		fmt.Fprintln(os.Stderr, "chromium is missing: run scripts/need chromium")
		os.Exit(1)
	}
	os.Exit(kit.Build(m, "../../..", func(dir string) { program = filepath.Join(dir, "headwaiter") }))
}

// tab is a page of a browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	asked    []string // addresses that the page has asked for
	troubles []string // what the browser complains of
}

// open starts a browser of its own, which ends with the test.
func open(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("no-sandbox", true), // It has none as root, and sees pages of this test alone.
		chromedp.WindowSize(1280, 860), chromedp.Flag("hide-scrollbars", true), chromedp.WSURLReadTimeout(patience))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	b := &tab{t: t}
	var closeTab func()
	b.ctx, closeTab = chromedp.NewContext(allocator, chromedp.WithListener(b.note))
	t.Cleanup(func() {
		_ = chromedp.Cancel(b.ctx) // Waits for its end.
		closeTab()
	})
	require.NoError(t, chromedp.Do(b.ctx)) // The browser lives for as long as this context.
	b.run(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, network.Enable, network.EnableParams{})
		_, err2 := cdp.Call(ctx, target, log.Enable, cdp.Empty{})
		return errors.Join(err, err2)
	}))
	return b
}

// note takes down what happens in the browser.
func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *log.EventEntryAdded:
		b.troubles = append(b.troubles, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *runtime.EventExceptionThrown:
		b.troubles = append(b.troubles, fmt.Sprint(e.ExceptionDetails))
	case *page.EventJavascriptDialogOpening:
		b.troubles = append(b.troubles, "a dialogue: "+e.Message)
	}
}

// calm fails if the browser has complained, of the policy or of anything else, or has asked elsewhere.
func (b *tab) calm(address string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.troubles)
	require.NotEmpty(b.t, b.asked)
	for _, a := range b.asked {
		require.True(b.t, strings.HasPrefix(a, address+"/"), a)
	}
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, actions...))
}

// value is what an expression of JavaScript is.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := ask[T](b, expression)
	require.NoError(b.t, err, expression)
	return v
}

func ask[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

// holds waits until an expression of JavaScript is true. While one page follows another it may have no value.
func (b *tab) holds(expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; {
		is, err := ask[bool](b, "!!("+expression+")")
		if is && err == nil {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s: is not so (%v); the page is\n%s", expression, err, value[string](b, "document.body.innerText"))
		}
		time.Sleep(20 * time.Millisecond) // A browser tells nobody.
	}
}

// shows waits until a part of the page has a text.
func (b *tab) shows(selector, text string) {
	b.t.Helper()
	b.holds(fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", selector, text))
}

// click clicks on the first that a selector finds with a text, once there is one. Both are one expression: the page
// replaces what it shows at any moment.
func (b *tab) click(selector, text string) {
	b.t.Helper()
	b.holds(fmt.Sprintf("(e => { e?.click(); return e })([...document.querySelectorAll(%q)].find(e => e.innerText.includes(%q)))", selector, text))
}

// visit goes to a page and waits for its script.
func (b *tab) visit(address string) { b.run(chromedp.Navigate(address)) }

// press presses keys, wherever the focus is.
func (b *tab) press(keys string) { b.run(chromedp.KeyEvent(keys)) }

// strike is a key as a keyboard has it: a page may keep it from what has the focus.
func (b *tab) strike(key string) {
	b.t.Helper()
	b.run(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: key, Text: key})
		_, err2 := cdp.Call(ctx, target, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: key})
		return errors.Join(err, err2)
	}))
}

// look sets the colours that the system of the browser prefers.
func (b *tab) look(scheme string) {
	b.t.Helper()
	b.run(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

// zone sets the time zone of the browser.
func (b *tab) zone(name string) {
	b.t.Helper()
	b.run(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name})
		return err
	}))
}

// picture takes a picture of so much of the page, and writes it where pictures are wanted.
func (b *tab) picture(name string, height int64) {
	b.t.Helper()
	b.run(chromedp.EmulateViewport(1280, height))
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	shot := kit.Got(chromedp.Run(ctx, chromedp.CaptureScreenshot()))(b.t)
	require.Equal(b.t, 1280, kit.Got(png.DecodeConfig(bytes.NewReader(shot)))(b.t).Width)
	if *update {
		folder := filepath.Join("..", "..", "..", "..", "docs", "pictures")
		require.NoError(b.t, os.MkdirAll(folder, 0o755))
		require.NoError(b.t, os.WriteFile(filepath.Join(folder, name), shot, 0o644))
	}
}
