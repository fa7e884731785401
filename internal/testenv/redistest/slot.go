package redistest

import "strings"

// slots is how many hash slots a cluster has.
const slots = 16384

// Slot is the hash slot of a key: of what is between its first { and the next }, if that is not empty, and
// of the whole key otherwise.
func Slot(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	return int(crc16(key) % slots)
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, from zero, nothing reflected.
func crc16(text string) uint16 {
	var crc uint16
	for i := range len(text) {
		crc ^= uint16(text[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return crc
}
