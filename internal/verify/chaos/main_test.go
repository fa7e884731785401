package chaos

import (
	"flag"
	"testing"

	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
)

// most is how many cases run at once: they wait for most of their time.
const most = "4"

func TestMain(m *testing.M) {
	childMain()
	crowd.Main()
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", most); err != nil {
			panic(err)
		}
	}
	leaks.Main(m)
}
