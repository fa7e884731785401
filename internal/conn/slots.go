package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lua"
)

// An owner is a range of slots, the node that has it, and the epoch of the configuration that says so.
type owner struct {
	first, last int
	address     string
	epoch       uint64
}

// askSlots asks the node at an address which slots are where. CLUSTER SLOTS tells the addresses as clients are to use
// them, CLUSTER NODES how new each part is; where a user may not ask for that, all count as new.
func askSlots(ctx context.Context, conn pipeline, asked string) ([]owner, error) {
	results := conn.DoMulti(ctx, conn.B().ClusterSlots().Build(), conn.B().ClusterNodes().Build())
	ranges, err := results[0].ToArray()
	if err != nil {
		return nil, err
	}
	text, err := results[1].ToString()
	if err != nil && !Answered(err) {
		return nil, err
	}
	return parseSlots(asked, ranges, parseEpochs(text))
}

// parseSlots reads the answer to CLUSTER SLOTS of the node at the given address: for each range its first and
// last slot, then the master and its replicas, each with host, port, id and more. An empty host is the one asked.
func parseSlots(asked string, ranges []rueidis.RedisMessage, epochs map[string]uint64) ([]owner, error) {
	var owners []owner
	for _, entry := range ranges {
		fields, err := entry.ToArray()
		if err != nil || len(fields) < 3 {
			return nil, fmt.Errorf("CLUSTER SLOTS: %d fields in a range: %w", len(fields), errOdd)
		}
		first, err1 := fields[0].AsInt64()
		last, err2 := fields[1].AsInt64()
		master, err3 := fields[2].ToArray()
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("CLUSTER SLOTS: %w", err)
		}
		if first < 0 || first > last || last >= lua.Slots || len(master) < 2 {
			return nil, fmt.Errorf("CLUSTER SLOTS: slots %d to %d, %d fields of a node: %w", first, last, len(master), errOdd)
		}
		host, _ := master[0].ToString() // nil: unknown to the node
		port, err := master[1].AsInt64()
		if err != nil {
			return nil, fmt.Errorf("CLUSTER SLOTS: %w", err)
		}
		if host == "" || host == "?" {
			if host, _, err = net.SplitHostPort(asked); err != nil {
				return nil, fmt.Errorf("CLUSTER SLOTS: %w", err)
			}
		}
		o := owner{first: int(first), last: int(last), address: net.JoinHostPort(host, strconv.FormatInt(port, 10))}
		if len(master) > 2 {
			id, _ := master[2].ToString()
			o.epoch = epochs[id]
		}
		owners = append(owners, o)
	}
	if len(owners) == 0 {
		return nil, fmt.Errorf("CLUSTER SLOTS: no slots: %w", errOdd)
	}
	return owners, nil
}

// parseEpochs reads the answer to CLUSTER NODES: a line a node, of id, address, flags, master, two times, the epoch of
// its configuration, and more. rueidis puts "txt:" before it where the server speaks RESP3.
func parseEpochs(text string) map[string]uint64 {
	epochs := make(map[string]uint64)
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) {
		if fields := strings.Fields(line); len(fields) > 6 {
			if epoch, err := strconv.ParseUint(fields[6], 10, 64); err == nil {
				epochs[fields[0]] = epoch
			}
		}
	}
	return epochs
}

// errOdd is the error for a reply of the wrong shape.
var errOdd = errors.New("not what Redis answers: is there a proxy in between?")
