package main

import (
	"os"
	"reflect"
	"strings"
)

var _ = func() int {
	if t := os.Getenv("EXPLORE_SKIP"); t != "" {
		worldRulesExtra(t)
	}
	return 0
}()

func worldRulesExtra(t string) {
	for _, one := range strings.Split(t, ",") {
		rules[one] = skip
		if after, ok := strings.CutPrefix(one, "main."); ok {
			worldRules[after] = skip
		}
	}
}

func listFields() (all []string) {
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			walk(t.Elem())
		case reflect.Struct:
			if seen[t] || t == timeType || t == scopeType {
				return
			}
			seen[t] = true
			for i := range t.NumField() {
				f := t.Field(i)
				n := nameOf(t) + "." + f.Name
				if rules[n] == skip {
					continue
				}
				k := f.Type.Kind()
				if !(k == reflect.Struct && f.Type != timeType) {
					all = append(all, n)
				}
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[world]())
	walk(reflect.TypeFor[call]())
	return all
}
