package main

import (
	"container/list"
	"container/ring"
	"reflect"
	"time"
	"unsafe"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/event"
)

// A world is a graph of pointers. The cores are part of it, and their fields are private. So a copy walks over the types,
// and reads each type once.

// A shape is what a copy has to do about values of a type after their bytes are copied.
type shape struct {
	of   reflect.Type
	size uintptr
	ops  []op
}

type op struct {
	at   uintptr
	kind reflect.Kind
	of   reflect.Type // of the field
	elem *shape       // of what a pointer or a slice has
	key  *shape       // of a map
	whom bool         // a pointer that may lead into the middle of something
}

var (
	timeType  = reflect.TypeFor[time.Time]()
	anyType   = reflect.TypeFor[any]()
	scopeType = reflect.TypeFor[scope]()

	ticketType = reflect.TypeFor[core.Ticket]()
	waiterType = reflect.TypeFor[event.Waiter]()

	whole     = map[reflect.Type]reflect.Type{reflect.TypeFor[core.Call](): ticketType} // A call begins a ticket, or a waiter.
	partOfAll = []reflect.Type{reflect.TypeFor[list.List](), reflect.TypeFor[list.Element](), reflect.TypeFor[ring.Ring]()}
	shapes    = map[reflect.Type]*shape{}
)

// beginsWaiter reports whether a call of a core begins a waiter, and not a ticket.
var beginsWaiter func(p unsafe.Pointer) bool

func shapeOf(t reflect.Type) *shape {
	if w := whole[t]; w != nil {
		t = w
	}
	s := shapes[t]
	if s == nil {
		s = &shape{of: t, size: t.Size()}
		shapes[t] = s
		s.add(t, 0)
	}
	return s
}

// add adds what is to be done for a value of a type at a place.
func (s *shape) add(t reflect.Type, at uintptr) {
	o := op{at: at, kind: t.Kind(), of: t}
	switch t.Kind() {
	case reflect.Struct:
		if t != timeType {
			for f := range t.NumField() {
				s.add(t.Field(f).Type, at+t.Field(f).Offset)
			}
		}
		return
	case reflect.Array:
		for i := range t.Len() {
			s.add(t.Elem(), at+uintptr(i)*t.Elem().Size())
		}
		return
	case reflect.Pointer:
		if t.Elem() == scopeType {
			return // Nobody changes it.
		}
		o.elem = shapeOf(t.Elem())
		for _, part := range partOfAll {
			o.whom = o.whom || t.Elem() == part
		}
	case reflect.Slice:
		o.elem = shapeOf(t.Elem())
	case reflect.Map:
		o.key, o.elem = shapeOf(t.Key()), shapeOf(t.Elem())
	case reflect.Interface:
		if t != anyType {
			return // An error, which nobody changes.
		}
	default:
		return
	}
	s.ops = append(s.ops, o)
}

// A copier copies one world after the other.
type copier struct {
	seen  map[unsafe.Pointer]unsafe.Pointer
	spans []span
}

// A span is where a copied value was, and is.
type span struct {
	from, to unsafe.Pointer
	size     uintptr
}

func newCopier() *copier { return &copier{seen: make(map[unsafe.Pointer]unsafe.Pointer, 64)} }

// copyOf returns a copy that shares nothing that changes.
func copyOf[T any](c *copier, p *T) *T {
	clear(c.seen)
	c.spans = c.spans[:0]
	return (*T)(c.pointer(shapeOf(reflect.TypeFor[T]()), unsafe.Pointer(p)))
}

func (c *copier) pointer(s *shape, p unsafe.Pointer) unsafe.Pointer {
	if p == nil {
		return nil
	}
	if q, ok := c.seen[p]; ok {
		return q
	}
	if s.of == ticketType && beginsWaiter(p) {
		s = shapes[waiterType]
	}
	v := reflect.New(s.of)
	v.Elem().Set(reflect.NewAt(s.of, p).Elem())
	q := v.UnsafePointer()
	c.seen[p] = q
	c.spans = append(c.spans, span{p, q, s.size})
	c.fix(s, q)
	return q
}

// inside returns the copy of what is in the middle of something that was copied.
func (c *copier) inside(p unsafe.Pointer) unsafe.Pointer {
	for _, s := range c.spans {
		if off := uintptr(p) - uintptr(s.from); uintptr(p) >= uintptr(s.from) && off < s.size {
			return unsafe.Add(s.to, off)
		}
	}
	return nil
}

func (c *copier) fix(s *shape, at unsafe.Pointer) {
	for i := range s.ops {
		o := &s.ops[i]
		p := unsafe.Add(at, o.at)
		switch o.kind {
		case reflect.Pointer:
			to := (*unsafe.Pointer)(p)
			if *to == nil {
				continue
			}
			if o.whom {
				if q := c.inside(*to); q != nil {
					*to = q
					continue
				}
			}
			*to = c.pointer(o.elem, *to)
		case reflect.Slice:
			c.slice(o, p)
		case reflect.Map:
			c.table(o, p)
		case reflect.Interface:
			c.any((*any)(p))
		}
	}
}

func (c *copier) slice(o *op, p unsafe.Pointer) {
	v := reflect.NewAt(o.of, p).Elem()
	n := v.Len()
	if n == 0 {
		if !v.IsNil() {
			v.SetZero() // What is appended to the one is not in the other.
		}
		return
	}
	fresh := reflect.MakeSlice(o.of, n, n)
	reflect.Copy(fresh, v)
	v.Set(fresh)
	if len(o.elem.ops) == 0 {
		return
	}
	base := fresh.UnsafePointer()
	for i := range n {
		c.fix(o.elem, unsafe.Add(base, uintptr(i)*o.elem.size))
	}
}

func (c *copier) table(o *op, p unsafe.Pointer) {
	v := reflect.NewAt(o.of, p).Elem()
	if v.IsNil() {
		return
	}
	fresh := reflect.MakeMapWithSize(o.of, v.Len())
	for each := v.MapRange(); each.Next(); {
		key, value := reflect.New(o.of.Key()).Elem(), reflect.New(o.of.Elem()).Elem()
		key.Set(each.Key())
		value.Set(each.Value())
		c.fixed(o.key, key)
		c.fixed(o.elem, value)
		fresh.SetMapIndex(key, value)
	}
	v.Set(fresh)
}

func (c *copier) fixed(s *shape, v reflect.Value) {
	if len(s.ops) > 0 {
		c.fix(s, v.Addr().UnsafePointer())
	}
}

func (c *copier) any(p *any) {
	if *p == nil {
		return
	}
	v := reflect.ValueOf(*p)
	if v.Kind() != reflect.Pointer {
		return
	}
	q := c.pointer(shapeOf(v.Type().Elem()), v.UnsafePointer())
	*p = reflect.NewAt(v.Type().Elem(), q).Interface()
}
