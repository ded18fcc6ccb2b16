// Command cofferdam runs all of Cofferdam on one machine.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"cofferdam.dev/deploy/local/internal/cli"
)

func main() {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cofferdam:", err)
		os.Exit(1)
	}
	os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, BinDir: filepath.Dir(self),
	}))
}
