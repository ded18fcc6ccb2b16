//go:build linux

// Command runner is process 1 of the world that an agent program runs in.
package main

import (
	"os"

	"cofferdam.dev/services/worker/internal/runner"
)

func main() { os.Exit(runner.Main(os.Args[1:], os.Stderr)) }
