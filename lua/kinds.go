package lua

import "strings"

// protocols are all that have keys of their own, by the order in which an operator is told of them.
var protocols = []*Protocol{Fairlock, Reentrant, RWLock, Semaphore, Election, Countdown, Barrier, Redlock}

// Kinds returns the kinds of all primitives.
func Kinds() []string {
	kinds := make([]string, len(protocols))
	for i, p := range protocols {
		kinds[i] = p.Kind
	}
	return kinds
}

// ProtocolOf returns the protocol of a kind, or nil if there is none.
func ProtocolOf(kind string) *Protocol {
	for _, p := range protocols {
		if p.Kind == kind {
			return p
		}
	}
	return nil
}

// NameOf returns the protocol and the name of the lock whose key this is. It reports false for the other keys of a lock,
// and for keys that are not of this protocol.
func NameOf(prefix, key string) (p *Protocol, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix+":")
	if !ok {
		return nil, "", false
	}
	kind, rest, ok := strings.Cut(rest, ":{")
	if !ok {
		return nil, "", false
	}
	name, ok = strings.CutSuffix(rest, "}")
	p = ProtocolOf(kind)
	return p, name, ok && p != nil && name != "" && name[0] != '}'
}
