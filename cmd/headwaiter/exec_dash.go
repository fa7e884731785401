package main

import (
	"strings"

	"github.com/spf13/pflag"
)

// withDashes puts the dashes before the command of an exec without them: the command is then the second word that is no
// flag, with all after it. Where a flag of exec stands in the command, it may be meant for either, and the error says
// what to write.
func withDashes(args []string) ([]string, error) {
	if len(args) == 0 || args[0] != "exec" {
		return args, nil
	}
	for _, a := range args {
		if a == "--" {
			return args, nil
		}
	}
	flags := newExec().Flags()
	flags.SetInterspersed(false)
	if flags.Parse(args[1:]) != nil || flags.NArg() < 2 {
		return args, nil // The library says what is wrong.
	}
	if flags.Parse(flags.Args()[1:]) != nil || flags.NArg() == 0 {
		return args, nil
	}
	command := flags.Args()
	own := args[:len(args)-len(command)]
	if i := flagIn(flags, command[1:]); i >= 0 {
		return nil, fail(exitUsage, "exec: if %s is for %s, write: headwaiter %s -- %s; if it is for headwaiter, put it before %[2]s",
			command[1+i], shellWord(command[0]), shellWords(own), shellWords(command))
	}
	return append(append(append([]string{}, own...), "--"), command...), nil
}

// flagIn finds the first of the words that is one of the flags, or -1.
func flagIn(flags *pflag.FlagSet, words []string) int {
	for i, word := range words {
		long, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if strings.HasPrefix(word, "--") && flags.Lookup(long) != nil {
			return i
		}
	}
	return -1
}

// shellWords are words as a shell takes them.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = shellWord(word)
	}
	return strings.Join(quoted, " ")
}
