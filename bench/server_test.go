package bench

import "testing"

const infoBefore = "# Stats\r\ntotal_net_input_bytes:1000\r\ntotal_net_output_bytes:2000\r\n# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.5\r\n" +
	"used_cpu_sys_children:9\r\n# Commandstats\r\ncmdstat_evalsha:calls=10,usec=300,usec_per_call=30.00,rejected_calls=0,failed_calls=0\r\n" +
	"cmdstat_client|setinfo:calls=4,usec=4,usec_per_call=1.00\r\ncmdstat_info:calls=1,usec=50,usec_per_call=50.00\r\n"

const infoAfter = "# Stats\r\ntotal_net_input_bytes:9000\r\ntotal_net_output_bytes:9000\r\n# CPU\r\nused_cpu_sys:1.6\r\nused_cpu_user:2.6\r\n" +
	"used_cpu_sys_children:9\r\n# Commandstats\r\ncmdstat_evalsha:calls=210,usec=4300,usec_per_call=20.47,rejected_calls=0,failed_calls=0\r\n" +
	"cmdstat_publish:calls=100,usec=200,usec_per_call=2.00\r\ncmdstat_client|setinfo:calls=4,usec=4,usec_per_call=1.00\r\n" +
	"cmdstat_info:calls=2,usec=90,usec_per_call=45.00\r\n"

func TestServerFiguresAreDifferencesForACycle(t *testing.T) {
	before := parseInfo(infoBefore)
	s := serverFigures(before, parseInfo(infoAfter), 100)
	if s.Scripts != 2 || s.Others != 1 || s.ScriptMicros != 20 {
		t.Errorf("%v scripts of %v µs and %v others, want 2 of 20 and 1", s.Scripts, s.ScriptMicros, s.Others)
	}
	if !near(s.CPUMicros, 2000) {
		t.Errorf("%v µs of CPU, want 2000", s.CPUMicros)
	}
	wantIn, wantOut := float64(8000-len(infoRequest))/100, float64(7000-before.reply)/100
	if !near(s.BytesIn, wantIn) || !near(s.BytesOut, wantOut) {
		t.Errorf("%v and %v bytes, want %v and %v: without the asking itself", s.BytesIn, s.BytesOut, wantIn, wantOut)
	}
}

func TestServerFiguresOfNoCycleAreZero(t *testing.T) {
	s := serverFigures(parseInfo(infoBefore), parseInfo(infoAfter), 0)
	if s.Scripts != 0 || s.BytesIn != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestReplySizeIsThatOnTheWire(t *testing.T) {
	if got, want := parseInfo("a:1\r\nb:2\r\n").reply, len("$10\r\na:1\r\nb:2\r\n\r\n"); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}
