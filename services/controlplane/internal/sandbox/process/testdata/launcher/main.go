// Command launcher makes the sandboxes of the tests.
package main

import (
	"os"

	"cofferdam.dev/pkg/isolation"
)

func main() { os.Exit(isolation.Main(os.Args)) }
