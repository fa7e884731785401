package lua

import "strings"

// Slots is how many hash slots a Redis cluster has.
const Slots = 16384

// Slot is the hash slot of a key or a sharded channel in a Redis cluster: the CRC16 of what stands between its
// first braces, or of all of it where there are none, modulo [Slots].
//
// See https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model.
func Slot(key string) uint16 {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, found := strings.Cut(rest, "}"); found && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc % Slots
}

// crcTable is of CRC16-XMODEM: polynomial 0x1021, from 0 on, the highest bit first.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
