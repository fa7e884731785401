package doctor

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What servers tell as text, read without assuming any of it to be there.

// told is what INFO and CLUSTER INFO answer: lines of key:value, in sections that start with #.
type told map[string]string

// parseInfo reads all lines that have a key. Where one comes twice the first counts.
func parseInfo(text string) told {
	found := make(told)
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		if !ok || key == "" || strings.HasPrefix(key, "#") {
			continue
		}
		if _, twice := found[key]; !twice {
			found[key] = value
		}
	}
	return found
}

// text is a value that is not empty.
func (i told) text(key string) Fact[string] {
	if v := i[key]; v != "" {
		return known(v)
	}
	return Fact[string]{}
}

// number is a value that is a number and cannot be negative.
func (i told) number(key string) Fact[int64] {
	n, err := strconv.ParseInt(i[key], 10, 64)
	if err != nil || n < 0 {
		return Fact[int64]{}
	}
	return known(n)
}

// seconds is a value that is a number of them; -1 stands for none.
func (i told) seconds(key string) Fact[time.Duration] {
	n := i.number(key)
	if !n.Known || n.Value > int64(longestTime/time.Second) {
		return Fact[time.Duration]{}
	}
	return known(time.Duration(n.Value) * time.Second)
}

// longestTime keeps what a server says of a time within what a duration can be.
const longestTime = 100 * 365 * 24 * time.Hour

// is reports whether a value is the word given, if there is one.
func (i told) is(key, word string) Fact[bool] {
	v, ok := i[key]
	return Fact[bool]{Value: ok && v == word, Known: ok}
}

// address is host and port under two keys.
func (i told) address(host, port string) Fact[string] {
	if i[host] == "" || i[port] == "" {
		return Fact[string]{}
	}
	return known(net.JoinHostPort(i[host], i[port]))
}

// role is what the server is, in the words of this library.
func (i told) role() Fact[string] {
	if i["redis_mode"] == "sentinel" {
		return known("sentinel")
	}
	return roleOf(i["role"])
}

func roleOf(word string) Fact[string] {
	switch word {
	case "master", "replica", "sentinel":
		return known(word)
	case "slave":
		return known("replica")
	}
	return Fact[string]{}
}

// product is whose server it is, and its own version: others tell which version of Redis they are compatible with,
// too.
func (i told) product() (product, version Fact[string]) {
	for _, name := range []string{"valkey", "dragonfly", "garnet", "kvrocks"} {
		if v := i.text(name + "_version"); v.Known {
			return known(name), v
		}
	}
	version = i.text("redis_version")
	if product = i.text("server_name"); !product.Known && version.Known {
		product = known("redis")
	}
	return product, version
}

// replicas are those that a master knows of: slave0:ip=127.0.0.1,port=6380,state=online,offset=14,lag=0.
func (i told) replicas() []ReplicaReport {
	found := []ReplicaReport{}
	for n := 0; ; n++ {
		line, ok := i["slave"+strconv.Itoa(n)]
		if !ok {
			return found
		}
		fields := make(told)
		for pair := range strings.SplitSeq(line, ",") {
			key, value, _ := strings.Cut(pair, "=")
			fields[key] = value
		}
		address := fields.address("ip", "port")
		found = append(found, ReplicaReport{Address: address.Value, State: fields.text("state"), Lag: fields.seconds("lag")})
	}
}

// A clusterNode is what one node of a cluster says of another.
type clusterNode struct {
	id, address, hostname string
	master                bool
	failed                bool // nobody reaches it, or this node does not
	slots                 bool // it has some
	of                    string
}

// parseClusterNodes reads CLUSTER NODES: id host:port@bus,hostname flags master ping pong epoch link slots…
// Among the slots are marks of those that move, [7->-id] and [7-<-id].
func parseClusterNodes(text string) []clusterNode {
	var found []clusterNode
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			continue
		}
		address, names, _ := strings.Cut(fields[1], ",")
		address, _, _ = strings.Cut(address, "@")
		n := clusterNode{id: fields[0], address: address, of: fields[3]}
		// Without brackets, IPv6 too.
		if colon := strings.LastIndexByte(address, ':'); colon >= 0 {
			n.address = net.JoinHostPort(strings.Trim(address[:colon], "[]"), address[colon+1:])
			if name, _, _ := strings.Cut(names, ","); name != "" && !strings.Contains(name, "=") {
				n.hostname = net.JoinHostPort(name, address[colon+1:])
			}
		}
		n.slots = slices.ContainsFunc(fields[8:], func(f string) bool { return !strings.HasPrefix(f, "[") })
		for flag := range strings.SplitSeq(fields[2], ",") {
			n.master = n.master || flag == "master"
			n.failed = n.failed || flag == "fail" || flag == "fail?" || flag == "noaddr"
		}
		found = append(found, n)
	}
	return found
}

// A bufferLimit is when a server cuts a connection that does not read: at hard bytes, or at soft for so long.
type bufferLimit struct {
	hard, soft int64
	after      time.Duration
}

// parseBufferLimit reads the limit for one class of connections out of client-output-buffer-limit: "normal 0 0 0 slave
// 268435456 67108864 60 pubsub 33554432 8388608 60".
func parseBufferLimit(setting, class string) (limit bufferLimit, ok bool) {
	fields := strings.Fields(setting)
	for len(fields) >= 4 {
		hard, err1 := strconv.ParseInt(fields[1], 10, 64)
		soft, err2 := strconv.ParseInt(fields[2], 10, 64)
		after, err3 := strconv.ParseInt(fields[3], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return limit, false
		}
		if fields[0] == class {
			return bufferLimit{hard, soft, time.Duration(min(after, int64(longestTime/time.Second))) * time.Second}, true
		}
		fields = fields[4:]
	}
	return limit, false
}

// parseTime reads what TIME answers: seconds, and the microseconds of the present one.
func parseTime(fields []string) (time.Time, bool) {
	if len(fields) != 2 {
		return time.Time{}, false
	}
	s, err1 := strconv.ParseInt(fields[0], 10, 64)
	us, err2 := strconv.ParseInt(fields[1], 10, 64)
	return time.Unix(s, us*1000), err1 == nil && err2 == nil
}

// older reports whether a version is known to be before major.minor.
func older(version Fact[string], major, minor int) bool {
	if !version.Known {
		return false
	}
	a, rest, _ := strings.Cut(version.Value, ".")
	b, _, _ := strings.Cut(rest, ".")
	first, err1 := strconv.Atoi(a)
	second, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil {
		return false
	}
	return first < major || first == major && second < minor
}
