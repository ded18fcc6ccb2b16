// Command sandbox puts the layers of isolation on itself and becomes the
// program that it is told of. The sandbox provider starts it; it does nothing
// when a person does.
package main

import (
	"os"

	"cofferdam.dev/pkg/isolation"
)

func main() { os.Exit(isolation.Main(os.Args)) }
