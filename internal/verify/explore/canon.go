package main

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// Two worlds are the same state if they differ in nothing but when things happened. So a state is written down with the rank of
// each time, token and arrival among those of its kind in place of the number. A timer may go off at any time from now on, so of
// one that is to come only that is written, and in which order those of one client come.

// A rule is how a field is written down.
type rule uint8

const (
	plain      rule = iota
	skip            // it decides nothing, or only how long something takes
	set             // a timer: whether it is set. It may go off at any time from now on
	polls           // the same of one that leads to a check: whether any of them is set
	sign            // a time: none, over, or to come
	limit           // until when a request may run
	local           // a time after which it cannot
	sending         // when a release was sent, which is compared with those
	token           // a token
	place           // an arrival
	generation      // of an event
	some            // a count of which only none, one and more matter
)

// rules are those of the fields that are not plain. Of a type of another package the first word is the package.
var rules = map[string]rule{
	"core.Name.used": skip, "core.Name.Linger": skip, "core.Name.NextCheck": polls, "core.Name.lostBy": polls, "core.Name.Failures": skip,
	"core.Subscription.Born": skip, "core.Subscription.Since": skip, "core.Subscription.lastToken": skip, "core.Subscription.Confirmations": some,
	"core.Subscription.PingBy": set, "core.Subscription.latePings": skip,
	"core.Answers.since": skip, "core.Answers.Last": skip,
	"core.Multi.until": skip, "core.Multi.Bound": skip,
	"core.Lock.claimBy": polls, "core.Lock.missBy": set, "core.Lock.handed": skip, "core.Lock.seen": skip, "core.Lock.Waited": skip, "core.Lock.leaving": skip, "core.Lock.owners": skip,
	"core.Calls.byText": skip,
	"core.Call.Begun":   skip, "core.Call.Place": skip, "core.Call.tries": skip, "core.Call.unanswered": skip, "core.Call.inDoubt": local,
	"core.Call.index": skip, "core.Call.answered": skip, "core.Call.Unended": skip, "core.Call.Deafness": skip, "core.Call.Deadline": skip, "core.Call.Budget": skip,
	"core.Call.owed": skip, "core.Call.ReleaseErr": skip, "core.Call.acknowledged": skip,
	"core.Ticket.Arrival": place, "core.Ticket.used": token, "core.Ticket.believed": skip, "core.Ticket.placed": skip,
	"core.Hold.Since": skip, "core.Hold.granted": skip, "core.Hold.due": set, "core.Hold.spans": skip, "core.Hold.inDoubt": skip, "core.Hold.hurried": skip, "core.Hold.Gone": skip, "core.Hold.limit": skip,
	"core.Hold.short": local, "core.Hold.kept": skip, "core.Hold.Token": token, "core.Hold.UseToken": token, "core.Hold.Idle": set, "core.Hold.failures": skip,
	"core.Hold.ReleaseFailure": skip, "core.Until.Deadline": sign, "core.Until.Slept": skip,
	"core.Release.until": skip, "core.Release.held": skip, "core.Release.Tries": skip, "core.Release.index": skip, "core.Release.Held": skip, "core.Release.unended": skip,
	"core.Release.Token": token, "core.Release.stuck": skip, "core.Release.unsure": skip,
	"core.Acquire.Arrival": place, "core.Named.Arrival": place,
	"core.Round.last": skip, "core.Renewal.Token": token, "core.Renewal.Kept": skip, "core.Grant.Token": skip, "core.Grant.From": skip, "core.Grant.Lasts": skip, "core.Grant.Before": skip, "core.Hold.told": skip, "wire.Grant.Before": skip, "core.Grant.Slept": skip, "core.Grant.limit": skip,

	"model.Mutex.LockEnds": skip, "model.Mutex.PastEnds": skip, "model.Hash.Plain": skip, "model.Hash.Until": sign, "model.Hash.Began": skip, "model.Hash.Previous": skip, "model.Hash.Keeps": skip, "permits.Hash.Previous": skip, "permits.Hash.Told": skip, "model.Hash.Rests": sign, "model.Hash.Stayed": token,
	"line.Line.QueueEnds": skip, "line.Line.SuspectsEnds": skip, "line.Line.Suspects": sign, "line.Notes.Token": token, "line.Notes.High": place,
	"line.Notes.Mark": sign, "line.Notes.Lapsed": skip, "line.Notes.Kept": skip, "line.Looked.Till": sign, "line.Looked.Waited": skip, "line.Scan.Arrival": place,
	"permits.Lock.LockEnds": skip, "permits.Lock.HoldersEnds": skip, "permits.Lock.Holders": sign, "permits.Hash.Born": skip, "permits.Hash.Rests": sign,
	"permits.Hash.Group": token, "permits.Hold.Token": token, "permits.Hold.Since": skip,
	"lua.Arrival.Arrival": place,
	"wire.Reply.Now":      skip, "wire.Reply.Token": skip, "wire.Reply.Until": sign, "wire.Reply.Place": skip, "wire.Reply.Waiting": skip, "wire.Reply.Arrival": place,
	"wire.Reply.Skipped": skip, "wire.Reply.Expired": skip, "wire.Message.Token": token, "wire.Grant.Token": token,
}

func init() {
	for name, r := range worldRules {
		rules["main."+name] = r
	}
}

// A field is one that is written down.
type field struct {
	at   uintptr
	of   reflect.Type
	rule rule
	sub  *form
	key  *form
}

// A form is how values of a type are written down.
type form struct {
	of      reflect.Type
	fields  []field
	special func(e *encoder, p unsafe.Pointer) bool // what is written first; true: that is all
}

var forms = map[reflect.Type]*form{}

func formOf(t reflect.Type) *form {
	if w := whole[t]; w != nil {
		t = w
	}
	f := forms[t]
	if f == nil {
		f = &form{of: t, special: specials[t]}
		forms[t] = f
		f.add(t, 0, plain)
	}
	return f
}

func nameOf(t reflect.Type) string {
	name, _, _ := strings.Cut(t.String(), "[")
	return name
}

func (f *form) add(t reflect.Type, at uintptr, r rule) {
	if r == skip {
		return
	}
	one := field{at: at, of: t, rule: r}
	switch t.Kind() {
	case reflect.Struct:
		if t == timeType {
			break
		}
		if f.of != t && specials[t] != nil {
			one.sub = formOf(t)
			break
		}
		for i := range t.NumField() {
			sub := t.Field(i)
			f.add(sub.Type, at+sub.Offset, rules[nameOf(t)+"."+sub.Name])
		}
		return
	case reflect.Array:
		for i := range t.Len() {
			f.add(t.Elem(), at+uintptr(i)*t.Elem().Size(), r)
		}
		return
	case reflect.Pointer, reflect.Slice:
		one.sub = formOf(t.Elem())
	case reflect.Map:
		one.key, one.sub = formOf(t.Key()), formOf(t.Elem())
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return
	}
	f.fields = append(f.fields, one)
}

// specials write down what depends on more than one field, or is reached more simply in another way.
var specials map[reflect.Type]func(e *encoder, p unsafe.Pointer) bool

// A mark is a place in what is written at which a rank goes.
type mark struct {
	at    int
	group rule
	n     int64 // of a time ns
}

// An encoder writes worlds down, one after the other.
type encoder struct {
	buf   []byte
	seen  map[unsafe.Pointer]uint16
	marks []mark
	times []mark
	ranks [16][]int64
	polls bool  // a timer of the client that leads to a check is set
	now   int64 // ns
	first int64 // generation, of an event where they are counted
	taken bool  // the grant that comes next is a hold already: its age is no matter
	seed  maphash.Seed
}

func newEncoder(seed maphash.Seed) *encoder {
	return &encoder{seen: make(map[unsafe.Pointer]uint16, 64), seed: seed}
}

// encode writes a value down.
func encode[T any](e *encoder, p *T, now time.Time) []byte {
	e.buf, e.marks, e.times, e.polls = e.buf[:0], e.marks[:0], e.times[:0], false
	clear(e.seen)
	e.seen[unsafe.Pointer(p)] = 0
	e.now = now.UnixNano()
	for i := range e.ranks {
		e.ranks[i] = e.ranks[i][:0]
	}
	e.value(formOf(reflect.TypeFor[T]()), unsafe.Pointer(p))
	e.bool(e.polls)
	for i := range e.ranks {
		slices.Sort(e.ranks[i])
		e.ranks[i] = slices.Compact(e.ranks[i])
	}
	for _, m := range e.marks {
		i, _ := slices.BinarySearch(e.ranks[m.group], m.n)
		e.buf[m.at] = byte(i + 1)
	}
	e.inOrder()
	return e.buf
}

// inOrder writes down how times come one after the other. Between two of a kind there is no difference, unless one of another
// kind comes in between.
func (e *encoder) inOrder() {
	e.times = append(e.times, mark{-1, sending, e.now})
	slices.SortStableFunc(e.times, func(a, b mark) int { return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.group, b.group)) })
	rank := byte(1)
	for i, m := range e.times {
		if i == 0 || e.times[i-1].group != m.group {
			rank++
		}
		if m.at >= 0 {
			e.buf[m.at] = rank
		}
	}
}

func (e *encoder) hash() uint64 { return maphash.Bytes(e.seed, e.buf) }

func (e *encoder) byte(b byte) { e.buf = append(e.buf, b) }

func (e *encoder) int(n int64) { e.buf = binary.AppendVarint(e.buf, n) }

func (e *encoder) bool(b bool) {
	if b {
		e.byte(1)
	} else {
		e.byte(0)
	}
}

func (e *encoder) text(s string) {
	e.int(int64(len(s)))
	e.buf = append(e.buf, s...)
}

// number writes down a number by a rule. scale makes ns of it where it is a time.
func (e *encoder) number(r rule, n, scale int64) {
	switch {
	case n == 0 && r == polls:
	case n == 0:
		e.byte(0)
	case r == plain:
		e.int(n)
	case r == generation && e.first != 0:
		e.int(n - e.first + 1)
	case r == some:
		e.byte(byte(min(n, 2)))
	case r == set:
		e.byte(1)
	case r == polls:
		e.polls = true
	case r == sign:
		e.bool(n*scale > e.now)
		e.byte(1)
	case r == limit && n*scale < e.now:
		e.byte(1)
	case r == limit || r == local || r == sending:
		e.times = append(e.times, mark{len(e.buf), r, n * scale})
		e.byte(0)
	default:
		e.ranks[r] = append(e.ranks[r], n)
		e.marks = append(e.marks, mark{len(e.buf), r, n})
		e.byte(0)
	}
}

func (e *encoder) value(f *form, p unsafe.Pointer) {
	if f.special != nil && f.special(e, p) {
		return
	}
	if f.of.Kind() != reflect.Struct {
		for i := range f.fields {
			e.field(&f.fields[i], p)
		}
		return
	}
	for i := range f.fields {
		e.field(&f.fields[i], unsafe.Add(p, f.fields[i].at))
	}
}

func (e *encoder) pointer(f *form, p unsafe.Pointer) {
	if p == nil {
		e.byte(0)
		return
	}
	if id, ok := e.seen[p]; ok {
		e.byte(1)
		e.int(int64(id))
		return
	}
	e.seen[p] = uint16(len(e.seen))
	if f.of == ticketType && beginsWaiter(p) {
		f = forms[waiterType]
	}
	e.byte(2)
	e.value(f, p)
}

func (e *encoder) field(f *field, p unsafe.Pointer) {
	switch f.of.Kind() {
	case reflect.Bool:
		e.bool(*(*bool)(p))
	case reflect.String:
		e.text(*(*string)(p))
	case reflect.Int64, reflect.Int, reflect.Uint64, reflect.Uint:
		e.number(f.rule, *(*int64)(p), 1000)
	case reflect.Int32, reflect.Uint32:
		e.int(int64(*(*int32)(p)))
	case reflect.Uint8, reflect.Int8:
		e.byte(*(*byte)(p))
	case reflect.Uint16, reflect.Int16:
		e.int(int64(*(*uint16)(p)))
	case reflect.Struct:
		if f.of == timeType {
			if at := (*time.Time)(p); at.IsZero() {
				e.number(f.rule, 0, 1)
			} else if f.rule == place {
				e.number(place, at.UnixMicro(), 1)
			} else {
				e.number(f.rule, at.UnixNano(), 1)
			}
			return
		}
		e.value(f.sub, p)
	case reflect.Pointer:
		e.pointer(f.sub, *(*unsafe.Pointer)(p))
	case reflect.Slice:
		base, n := *(*unsafe.Pointer)(p), *(*int)(unsafe.Add(p, unsafe.Sizeof(uintptr(0))))
		e.int(int64(n))
		for i := range n {
			e.value(f.sub, unsafe.Add(base, uintptr(i)*f.sub.of.Size()))
		}
	case reflect.Map:
		e.table(f, p)
	case reflect.Interface:
		v := reflect.NewAt(f.of, p).Elem()
		switch {
		case v.IsNil():
			e.byte(0)
		case f.of != anyType:
			e.text(v.Interface().(error).Error())
		default:
			e.pointer(formOf(v.Elem().Type().Elem()), v.Elem().UnsafePointer())
		}
	default:
		panic("explore: no way to write down " + f.of.String())
	}
}

// table writes down a map from texts.
func (e *encoder) table(f *field, p unsafe.Pointer) {
	v := reflect.NewAt(f.of, p).Elem()
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	e.int(int64(len(keys)))
	for _, k := range keys {
		e.text(k.String())
		value := reflect.New(f.of.Elem()).Elem()
		value.Set(v.MapIndex(k))
		if f.sub.of.Kind() == reflect.Struct {
			e.value(f.sub, value.Addr().UnsafePointer())
			continue
		}
		one := field{of: f.of.Elem(), rule: f.rule, sub: f.sub}
		e.field(&one, value.Addr().UnsafePointer())
	}
}
