package main

import (
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/doctor"
	"github.com/headwaiter/headwaiter/internal/tty"
)

// How the doctor writes measurements.

// orUnknown is a fact as f writes it.
func orUnknown[T any](f doctor.Fact[T], write func(T) string) string {
	if !f.Known {
		return "unknown"
	}
	return write(f.Value)
}

// span is a short time.
func span(d time.Duration) string {
	if d.Abs() < time.Millisecond {
		return fmt.Sprintf("%d µs", d.Microseconds())
	}
	return tty.Short(d)
}

// age is a long time.
func age(d time.Duration) string {
	seconds := int64(d / time.Second)
	switch {
	case seconds < 60:
		return fmt.Sprintf("%d s", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%d min %d s", seconds/60, seconds%60)
	case seconds < 86400:
		return fmt.Sprintf("%d h %d min", seconds/3600, seconds%3600/60)
	}
	return fmt.Sprintf("%d d %d h", seconds/86400, seconds%86400/3600)
}

// offset is what is known of a clock: that it may be right, or by how much it is off.
func offset(o doctor.ClockOffset) string {
	if o.Low <= 0 && o.High >= 0 {
		return fmt.Sprintf("same as this machine, ± %s", span(max(-o.Low, o.High)))
	}
	middle, half := (o.Low+o.High)/2, (o.High-o.Low)/2
	word := "ahead of"
	if middle < 0 {
		word, middle = "behind", -middle
	}
	return fmt.Sprintf("%s %s this machine, ± %s", span(middle), word, span(half))
}

// size is a number of bytes.
func size(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	v := float64(n)
	for v >= 999.5 && len(units) > 1 {
		v, units = v/1000, units[1:]
	}
	if v < 10 && units[0] != "B" {
		return fmt.Sprintf("%.1f %s", v, units[0])
	}
	return fmt.Sprintf("%.0f %s", v, units[0])
}
