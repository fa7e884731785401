package report

import (
	"image/color"
	"strconv"
	"strings"
)

// A Look is how a series is drawn: locks of one engine share a hue, this project's are drawn thick.
type Look struct {
	Color  color.RGBA
	Strong bool // this project's
	Dashed bool
	Marker int
}

// looks are by name.
var looks = map[string]Look{
	"headwaiter":                  {Color: color.RGBA{0x0b, 0x3d, 0x91, 255}, Strong: true},
	"bare-protocol":               {Color: color.RGBA{0x11, 0x11, 0x11, 255}, Dashed: true, Marker: 1},
	"headwaiter-multilock-3":      {Color: color.RGBA{0x6b, 0x8e, 0xc8, 255}, Marker: 2},
	"redisson-fair":               {Color: color.RGBA{0xc0, 0x39, 0x2b, 255}, Marker: 1},
	"redisson-plain":              {Color: color.RGBA{0xe6, 0x7e, 0x22, 255}, Marker: 2},
	"rueidislock":                 {Color: color.RGBA{0x8e, 0x44, 0xad, 255}, Dashed: true, Marker: 1},
	"rueidislock-tuned":           {Color: color.RGBA{0x8e, 0x44, 0xad, 255}, Marker: 2},
	"redsync":                     {Color: color.RGBA{0x7f, 0x8c, 0x8d, 255}, Marker: 1},
	"redislock":                   {Color: color.RGBA{0x5d, 0x40, 0x37, 255}, Dashed: true, Marker: 2},
	"redislock-1ms":               {Color: color.RGBA{0x5d, 0x40, 0x37, 255}, Marker: 3},
	"etcd-mutex":                  {Color: color.RGBA{0x2e, 0x86, 0xc1, 255}, Dashed: true, Marker: 1},
	"headwaiter-etcd":             {Color: color.RGBA{0x2e, 0x86, 0xc1, 255}, Strong: true, Marker: 1},
	"zookeeper-lock":              {Color: color.RGBA{0x1e, 0x84, 0x49, 255}, Dashed: true, Marker: 2},
	"headwaiter-zookeeper":        {Color: color.RGBA{0x1e, 0x84, 0x49, 255}, Strong: true, Marker: 2},
	"postgres-advisory":           {Color: color.RGBA{0xb7, 0x95, 0x0b, 255}, Dashed: true, Marker: 3},
	"headwaiter-postgres-session": {Color: color.RGBA{0xb7, 0x95, 0x0b, 255}, Strong: true, Marker: 3},
	"headwaiter-postgres-leased":  {Color: color.RGBA{0xd4, 0xac, 0x0d, 255}, Strong: true, Dashed: true, Marker: 4},
}

// spare are the hues of what has no look of its own, in their order.
var spare = []color.RGBA{{0x0b, 0x3d, 0x91, 255}, {0xc0, 0x39, 0x2b, 255}, {0xe0, 0x9f, 0x1f, 255}, {0x2c, 0x8c, 0x6a, 255}}

// LookOf is the look of the i-th series.
func LookOf(name string, i int) Look {
	if look, ok := looks[name]; ok {
		return look
	}
	return Look{Color: spare[i%len(spare)], Marker: i}
}

// grouped is a number with its thousands apart.
func grouped(v float64) string {
	text := strconv.FormatFloat(v, 'f', 0, 64)
	var b strings.Builder
	for i, digit := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}

// Short is a number in as few digits as tell it.
func Short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return grouped(v)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 0.01:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}
