package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/handoffs"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// completions is how many names a shell is offered.
	completions = 100
	// completionTime is how long somebody who has typed a tab is kept waiting for each step of it.
	completionTime = 500 * time.Millisecond
)

// refuseOtherShells has completion fail for a shell that it does not know, which the library takes for a call for help.
func refuseOtherShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		var shells []string
		for _, shell := range cmd.Commands() {
			shells = append(shells, shell.Name())
		}
		cmd.Args = nil
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fail(exitUsage, "completion: %q: there is %s", args[0], strings.Join(shells, ", "))
			}
			return cmd.Help()
		}
	}
}

// completeNames completes the first argument with the names that the server knows.
func completeNames(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	const nothing = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, nothing
	}
	var l lookout
	l.given = cmd.Flags()
	for name, value := range map[string]*string{
		"redis": &l.redis, "redis-file": &l.file, "tls-ca": &l.tls.ca, "tls-cert": &l.tls.cert, "tls-key": &l.tls.key, "prefix": &l.prefix,
	} {
		*value, _ = l.given.GetString(name)
	}
	o, err := l.options("headwaiter completion")
	if err != nil {
		return nil, nothing
	}
	o.Redis.Dialer.Timeout, o.Redis.ConnWriteTimeout = completionTime, completionTime
	client, err := headwaiter.Dial(o)
	if err != nil {
		return nil, nothing
	}
	defer hangUp(client)
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	var names []string
	for n, err := range inspect.List(ctx, client, handoffs.Literally(typed)+"*") {
		if err != nil || len(names) == completions {
			break // What there is by then is better than nothing.
		}
		// A shell would read more into it, or a terminal; a dash begins a flag.
		if !strings.ContainsAny(n.Name, " \t'\"\\`$&|;<>()") && words.Shown(n.Name) == n.Name && !strings.HasPrefix(n.Name, "-") {
			names = append(names, n.Name)
		}
	}
	return names, nothing
}

// completeExec completes the name of exec. What comes after it is a command of the shell's.
func completeExec(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	if engine, err := cmd.Flags().GetString("engine"); err == nil && engine != onRedis.name {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeNames(cmd, args, typed)
}

// completeKinds completes the flag --kind.
func completeKinds(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return lua.Kinds(), cobra.ShellCompDirectiveNoFileComp
}

// A kindValue is the value of the flag --kind: one of those that there are.
type kindValue string

func (k *kindValue) Set(kind string) error {
	if kind != "" && lua.ProtocolOf(kind) == nil {
		return fmt.Errorf("there is %s", strings.Join(lua.Kinds(), ", "))
	}
	*k = kindValue(kind)
	return nil
}

func (k *kindValue) String() string { return string(*k) }
func (k *kindValue) Type() string   { return "string" }

// kindFlag adds the flag --kind.
func kindFlag(cmd *cobra.Command, kind *string) {
	cmd.Flags().Var((*kindValue)(kind), "kind", "which of several of the same name: "+strings.Join(lua.Kinds(), ", "))
	if err := cmd.RegisterFlagCompletionFunc("kind", completeKinds); err != nil {
		panic(err) // There is no such flag.
	}
}
