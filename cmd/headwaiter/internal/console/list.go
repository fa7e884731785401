package console

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// mostNames is how many names are kept: some fifty megabytes.
	mostNames = 50_000
	// pageNames is how many of them a page shows.
	pageNames = 100
)

// names are what a walk over the server has found.
type names struct {
	found []entry
	more  bool // there are more than are kept, or than a walk has come to in its time
}

// entry is one name.
type entry struct {
	inspect.Listed
	holder string // in words
	text   string // what a filter looks at
}

// scan walks over the names of the server.
func (c *Console) scan(ctx context.Context) (names, error) {
	return c.gather(ctx, inspect.List(ctx, c.Client, "*"))
}

// gather keeps what a walk finds until there is enough, or its time is over.
func (c *Console) gather(ctx context.Context, walk iter.Seq2[inspect.Listed, error]) (names, error) {
	var n names
	who := words.Roll{}
	for l, err := range walk {
		if err != nil && len(n.found) > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			n.more = true // What was found is worth more than none.
			break
		}
		if err != nil {
			return names{}, err
		}
		if len(n.found) == c.most {
			n.more = true
			break
		}
		who.Read(l.Info)
		n.found = append(n.found, entry{Listed: l})
	}
	for i := range n.found {
		e := &n.found[i]
		e.holder = words.Summary(e.Listed, who)
		e.text = strings.ToLower(e.Name + "\n" + e.holder)
	}
	return n, nil
}

// query is what a page of the list is asked for.
type query struct {
	Text, Kind, Only, Sort string
	page                   int
}

// columns are what a list is sorted by. A first click on one goes the way that operators look for: longest and most first.
var columns = map[string]struct {
	compare   func(a, b *entry) int
	downFirst bool
}{
	"name":    {byName, false},
	"kind":    {func(a, b *entry) int { return cmp.Compare(a.Kind, b.Kind) }, false},
	"holder":  {func(a, b *entry) int { return cmp.Compare(a.holder, b.holder) }, false},
	"held":    {func(a, b *entry) int { return b.Info.Holder.Since.Compare(a.Info.Holder.Since) }, true},
	"waiting": {func(a, b *entry) int { return cmp.Compare(a.Info.Waiting, b.Info.Waiting) }, true},
}

func queryOf(v url.Values) query {
	q := query{Text: v.Get("q"), Kind: v.Get("kind"), Only: v.Get("only"), Sort: v.Get("sort")}
	if _, ok := columns[strings.TrimPrefix(q.Sort, "-")]; !ok {
		q.Sort = "name"
	}
	q.page, _ = strconv.Atoi(v.Get("page"))
	q.page = max(q.page, 1)
	return q
}

// link leads to the list with another order and page.
func (q query) link(sort string, page int) string {
	v := url.Values{}
	for key, value := range map[string]string{"q": q.Text, "kind": q.Kind, "only": q.Only} {
		if value != "" {
			v.Set(key, value)
		}
	}
	v.Set("sort", sort)
	if page > 1 {
		v.Set("page", strconv.Itoa(page))
	}
	return "/?" + v.Encode()
}

// choose returns the names that are asked for, in their order.
func (q query) choose(all []entry) []*entry {
	text := strings.ToLower(strings.TrimSpace(q.Text))
	var found []*entry
	for i := range all {
		e := &all[i]
		if (q.Kind == "" || e.Kind == q.Kind) && (q.Only != "held" || e.Info.Held) && (q.Only != "waiting" || e.Info.Waiting > 0) &&
			strings.Contains(e.text, text) {
			found = append(found, e)
		}
	}
	by, down := strings.CutPrefix(q.Sort, "-")
	compare := columns[by].compare
	slices.SortFunc(found, func(a, b *entry) int {
		switch {
		case by == "held" && a.Info.Held && !b.Info.Held: // What nobody holds comes last, whichever way.
			return -1
		case by == "held" && b.Info.Held && !a.Info.Held:
			return 1
		case down:
			return cmp.Or(compare(b, a), byName(a, b))
		}
		return cmp.Or(compare(a, b), byName(a, b))
	})
	return found
}

func byName(a, b *entry) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind)) }

// What the page of the list shows.
type (
	listPage struct {
		query
		Kinds                     []string
		Columns                   []column
		Rows                      []listRow
		Matching, All, Page, Last int
		Age                       string
		More                      bool
		Before, After             string // links
	}
	column struct {
		Title, Link, Order string
		Number             bool
	}
	listRow struct {
		Kind, Name, Holder told
		Link               string
		Held               *span // nil if nobody holds it
		Waiting            int
	}
)

func (c *Console) list(w http.ResponseWriter, r *http.Request) {
	q, a := queryOf(r.URL.Query()), c.names.get(r.Context())
	if a.err != nil {
		c.unavailable(w, a.err)
		return
	}
	found := q.choose(a.value.found)
	p := listPage{query: q, Kinds: lua.Kinds(), Matching: len(found), All: len(a.value.found), More: a.value.more, Age: a.age()}
	p.Last = max(1, (len(found)+pageNames-1)/pageNames)
	p.Page = min(q.page, p.Last)
	if p.Page > 1 {
		p.Before = q.link(q.Sort, p.Page-1)
	}
	if p.Page < p.Last {
		p.After = q.link(q.Sort, p.Page+1)
	}
	for _, by := range []string{"name", "kind", "holder", "held", "waiting"} {
		p.Columns = append(p.Columns, q.column(by))
	}
	for _, e := range found[(p.Page-1)*pageNames : min(p.Page*pageNames, len(found))] {
		row := listRow{Kind: tell(e.Kind), Name: tell(e.Name), Holder: tell(e.holder), Link: nameLink("/name", e.Kind, e.Name), Waiting: e.Info.Waiting}
		if e.Info.Held {
			row.Held = spanSince(e.Info.Holder.Since, time.Now())
		}
		p.Rows = append(p.Rows, row)
	}
	c.show(w, http.StatusOK, "list", "Names", p)
}

// column is the head of a column, with the link that sorts by it, or turns the order.
func (q query) column(by string) column {
	titles := map[string]string{"name": "Name", "kind": "Kind", "holder": "Holder", "held": "Held", "waiting": "Waiting"}
	col := column{Title: titles[by], Number: by == "held" || by == "waiting"}
	next := by
	switch q.Sort {
	case by:
		col.Order, next = "ascending", "-"+by
	case "-" + by:
		col.Order = "descending"
	default:
		if columns[by].downFirst {
			next = "-" + by
		}
	}
	col.Link = q.link(next, 1)
	return col
}

// nameLink leads to a page of a name.
func nameLink(path, kind, name string) string {
	return path + "?" + url.Values{"kind": {kind}, "name": {name}}.Encode()
}
