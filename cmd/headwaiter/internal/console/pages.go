package console

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strings"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/lease"
)

//go:embed templates
var files embed.FS

// pages are the templates. They escape what they show by where it stands.
var pages = template.Must(template.ParseFS(files, "templates/*.html"))

// frame is what all pages have around them.
type frame struct {
	Title    told
	Redis    told
	Release  bool
	Page     string
	Contents template.HTML // of a template
}

// render writes one part of a page.
func (c *Console) render(out io.Writer, name string, data any) error {
	err := pages.ExecuteTemplate(out, name, data)
	if err != nil {
		c.log("page %s: %v", name, err)
	}
	return err
}

// show answers with a page.
func (c *Console) show(w http.ResponseWriter, status int, page, title string, data any) {
	var contents, whole bytes.Buffer
	if c.render(&contents, page, data) != nil ||
		c.render(&whole, "frame", frame{tell(title), tell(c.Redis), c.Release, page, template.HTML(contents.String())}) != nil {
		http.Error(w, "That page cannot be made.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(whole.Bytes())
}

// fail answers with a page that says why there is no other.
func (c *Console) fail(w http.ResponseWriter, status int, why string) {
	c.show(w, status, "failure", http.StatusText(status), tell(why))
}

// unavailable says what Redis, or the library, has refused.
func (c *Console) unavailable(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	if errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrTooLarge) {
		status = http.StatusBadRequest
	}
	text := words.OneLine(err.Error())
	for _, prefix := range []string{"inspect: ", "find: ", "list: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	c.fail(w, status, text)
}

// log writes a line of the console's own. What came from elsewhere is made printable.
func (c *Console) log(format string, args ...any) {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = words.Shown(a)
		case error:
			args[i] = words.Shown(a.Error())
		}
	}
	fmt.Fprintf(c.Log, "headwaiter: "+format+"\n", args...)
}
