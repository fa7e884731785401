package striped_test

// golden are keys and their stripes.
var golden = []struct {
	key    string
	of     int
	stripe int
}{
	{"", 16, 14},
	{"", 1000, 936},
	{"a", 16, 8},
	{"a", 1000, 510},
	{"b", 16, 6},
	{"b", 1000, 431},
	{"7", 16, 12},
	{"7", 1000, 809},
	{"42", 16, 8},
	{"42", 1000, 504},
	{"user:1", 16, 4},
	{"user:1", 1000, 300},
	{"user:2", 16, 5},
	{"user:2", 1000, 357},
	{"account:9007199254740993", 16, 7},
	{"account:9007199254740993", 1000, 450},
	{"a much longer key with spaces in it, and a comma", 16, 14},
	{"a much longer key with spaces in it, and a comma", 1000, 927},
	{"Straße", 16, 13},
	{"Straße", 1000, 827},
	{"日本", 16, 1},
	{"日本", 1000, 71},
	{"\x00\xff", 16, 10},
}
